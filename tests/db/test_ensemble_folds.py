"""Ensembles of cross-validated models: each row is judged by models that were not trained on it."""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg2
import pytest

from fixtures import MakeRole
from trial import ADAM, Trial

pytestmark = pytest.mark.fresh_caller

ROWS, FOLDS = 240, 3


@pytest.fixture(scope="module", autouse=True)
def models(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE rows AS SELECT i AS id, sin(i) AS a, cos(i * i) AS b, chr(97 + i % 3) AS c,"
        " CASE WHEN sin(i) + cos(i * i) + (i % 3) > 1 THEN 'yes' ELSE 'no' END AS label,"
        " 1000 * (sin(i) + i % 3) AS price FROM generate_series(1, 240) AS i"
    )
    pack(trial, "crossed", {"folds": {"count": FOLDS, "stratify": True}})
    trial.select("mst", [1, 2], [ADAM], ["batch_size=16"], arch="crossed_nets")
    options = {"cross_validate": {"models": True}, "restore_best": True}
    trial.fit("crossed", "by_fold", "mst", 3, options=options)
    pack(trial, "held", {"validation": {"share": 0.25, "stratify": True}})
    trial.select("held_mst", [1, 2], [ADAM], ["batch_size=16"], arch="held_nets")
    trial.fit("held", "whole", "held_mst", 3, validation_table="held_validation")


def pack(trial: Trial, name: str, options: dict[str, Any]) -> None:
    """Pack the table `rows` as `name`, and make two nets for the packed table."""
    trial.pack("rows", name, "label", "a, b, c", options={"columns": "auto", **options})
    for params in ('{"width": 4}', '{"width": 8}'):
        trial.sql("SELECT cerebro.load_net(%s, %s, 'tabular', %s)", f"{name}_nets", name, params)


def told(trial: Trial, model: str, key: int | None = None) -> dict[tuple[int, str], float]:
    """Predict `rows` into a table, and return the probability for each row id and class."""
    trial.sql("DROP TABLE IF EXISTS told")
    ask = "SELECT cerebro.madlib_predict(%s, 'rows', 'id', '*', 'told', 'prob', mst_key => %s)"
    trial.sql(ask, model, key)
    return {(row, value): prob for row, value, prob in trial.sql("SELECT id, class_value, prob FROM told")}


def tables(trial: Trial) -> list[str]:
    found = trial.sql("SELECT relname::text FROM pg_class WHERE relkind = 'r' ORDER BY 1")
    return [name for (name,) in found]


def test_models_by_fold_are_kept_with_keys_of_their_own(trial: Trial) -> None:
    kept = trial.sql("SELECT mst_key, config_key, fold FROM by_fold_info ORDER BY config_key, fold")
    assert [(config, fold) for _, config, fold in kept] == [(c, f) for c in (1, 2) for f in (1, 2, 3)]
    assert {key for key, _, _ in kept} == {key for (key,) in trial.sql("SELECT mst_key FROM by_fold")}
    # Each model was measured on the rows of its fold, on which it was not trained.
    for key, _, fold in kept:
        trial.sql("DROP TABLE IF EXISTS unseen, unseen_summary, measured")
        trial.sql(f"CREATE TABLE unseen AS SELECT * FROM crossed WHERE __fold__ = {fold}")
        trial.sql("CREATE TABLE unseen_summary AS SELECT * FROM crossed_summary")
        trial.sql("SELECT cerebro.madlib_evaluate('by_fold', 'unseen', 'measured', mst_key => %s)", key)
        loss = trial.value("SELECT validation_loss_final FROM by_fold_info WHERE mst_key = %s", key)
        assert trial.value("SELECT loss FROM measured") == pytest.approx(loss, rel=1e-5)


def test_an_ensemble_answers_with_the_mean_of_all_folds(trial: Trial) -> None:
    shares = dict(trial.sql("SELECT * FROM cerebro.ensemble('by_fold', 'joined', metric => 'accuracy')"))
    said = trial.notices()
    assert f" in {FOLDS} folds)" in said and f"each of all {ROWS} rows" in said
    keys = trial.sql("SELECT mst_key, config_key FROM by_fold_info")
    parts = {key: (shares.get(config, 0) / FOLDS, told(trial, "by_fold", key)) for key, config in keys}
    for place, answer in told(trial, "joined").items():
        mean = sum(share * answers[place] for share, answers in parts.values())
        assert answer == pytest.approx(mean, abs=2e-6)


def test_each_row_is_judged_by_models_that_have_not_seen_it(trial: Trial) -> None:
    """With one config, the ensemble's loss is the mean loss of the folds, weighted by their rows."""
    trial.sql("CREATE TABLE alone AS SELECT * FROM by_fold")
    trial.sql("CREATE TABLE alone_summary AS SELECT * FROM by_fold_summary")
    trial.sql("CREATE TABLE alone_info AS SELECT * FROM by_fold_info WHERE config_key = 1")
    trial.sql("SELECT cerebro.ensemble('alone', 'alone_joined', metric => 'accuracy')")
    expected = trial.value(
        "SELECT sum(i.validation_loss_final * f.rows) / sum(f.rows) FROM alone_info AS i JOIN"
        " (SELECT __fold__ AS fold, sum(label_shape[1]) AS rows FROM crossed GROUP BY 1) AS f USING (fold)"
    )
    found = trial.value("SELECT validation_loss_final FROM alone_joined_summary")
    assert found == pytest.approx(expected, rel=1e-4)
    assert trial.value("SELECT folds FROM alone_joined_summary") == FOLDS


def test_a_config_without_one_of_its_models_is_out(trial: Trial) -> None:
    for name in ("", "_summary", "_info"):
        trial.sql(f"CREATE TABLE cut{name} AS SELECT * FROM by_fold{name}")
    trial.sql("UPDATE cut_info SET model_size = NULL WHERE config_key = 2 AND fold = 1")
    assert trial.sql("SELECT * FROM cerebro.ensemble('cut', 'cut_joined')") == [(1, 1.0)]


def test_an_ensemble_trains_the_best_configs_in_folds(trial: Trial) -> None:
    before, run = tables(trial), trial.value("SELECT cerebro.last_run()")
    options = json.dumps({"folds": {"count": FOLDS, "stratify": True}, "max_seconds": 60})
    shares = trial.sql("SELECT * FROM cerebro.ensemble('whole', 'folded', options => %s)", options)
    assert {key for key, _ in shares} <= {1, 2} and f"each of all {ROWS} rows" in trial.notices()
    assert sorted({*tables(trial)} - {*before}) == ["folded", "folded_summary"]
    assert trial.value("SELECT cerebro.last_run()") == run
    assert trial.value("SELECT count(*) FROM cerebro.runs WHERE run_id > %s", run) == 0
    ((source, about),) = trial.sql("SELECT source_table, description FROM folded_summary")
    assert source == "held" and f"ensemble of public.whole in {FOLDS} folds" in about
    assert trial.value("SELECT json_array_length(model_arch->'config'->'layers') FROM folded") > 10
    if trial.topology != "greenplum":
        one = trial.sql("SELECT p.class FROM rows AS r, cerebro.predict('folded', r) AS p WHERE r.id = 1")
        assert one[0][0] in ("yes", "no")


def test_without_time_for_folds_the_held_out_rows_choose(trial: Trial) -> None:
    """If the time left is too short to train models in folds, the held-out rows choose the models."""
    longer = (
        "UPDATE cerebro._visit SET train_seconds = train_seconds + %s"
        " WHERE run_id = (SELECT run_id FROM whole_summary)"
    )
    options, before = json.dumps({"folds": FOLDS, "max_seconds": 20}), tables(trial)
    trial.sql(longer, 60)
    try:
        trial.sql("SELECT cerebro.ensemble('whole', 'unfolded', options => %s)", options)
    finally:
        trial.sql(longer, -60)
    said = trial.notices()
    assert "there is no time for models in folds: those of one config would take some" in said
    assert "with 20 s left" in said and "held-out rows measures" in said
    assert sorted({*tables(trial)} - {*before}) == ["unfolded", "unfolded_summary"]


@pytest.mark.postgresql
def test_rows_that_any_fold_has_seen_do_not_promote(trial: Trial) -> None:
    options = json.dumps({"folds": 2})
    trial.sql("SELECT cerebro.ensemble('whole', 'seen', options => %s)", options)
    for _ in range(2):
        trial.sql("SELECT cerebro.register('seen', 'by_folds')")
    with pytest.raises(psycopg2.Error, match="was trained on the rows of .*held_validation"):
        trial.sql("SELECT cerebro.promote('by_folds', 2, if_better_on => 'held_validation')")


@pytest.mark.slow
def test_folds_of_a_run_that_measured_once_train_all_its_epochs(trial: Trial) -> None:
    trial.fit("held", "once", "held_mst", 40, validation_table="held_validation")
    trial.sql("SELECT cerebro.ensemble('once', 'of_once', options => '{\"folds\": 2}')")
    # After one epoch of so few rows, a net answers as chance does.
    assert trial.value("SELECT validation_loss_final FROM of_once_summary") < 0.5


@pytest.mark.postgresql
def test_a_check_compares_with_models_that_had_not_seen_the_rows(trial: Trial) -> None:
    trial.sql("SELECT cerebro.ensemble('whole', 'checked', options => '{\"folds\": 2}')")
    trial.sql("SELECT cerebro.register('checked', 'of_folds')")
    apart = trial.value("SELECT validation_metrics_final FROM checked_summary")
    check = "SELECT measure, before, verdict FROM cerebro.check('of_folds', %s) WHERE before IS NOT NULL"
    before = {measure: value for measure, value, _ in trial.sql(f"{check} AND column_name IS NULL", "rows")}
    assert before == {"logloss": pytest.approx(apart)}
    trial.sql(
        "CREATE VIEW turned AS SELECT a, b, c,"
        " CASE label WHEN 'yes' THEN 'no' ELSE 'yes' END AS label FROM rows"
    )
    assert ("logloss", pytest.approx(apart), "alarm") in trial.sql(check, "turned")
    kept = "SELECT metrics #>> '{validation,rows}' FROM cerebro.model_versions WHERE name = 'of_folds'"
    assert trial.value(kept) == "public.held"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("'whole', 'bad', options => '{\"max_seconds\": 3}'", "max_seconds limits the training"),
        ("'whole', 'bad', options => '{\"folds\": 1}'", "folds"),
        ("'whole', 'bad', options => '{\"fold\": 2}'", "fold"),
        ("'whole', 'taken', options => '{\"folds\": 2}'", "taken_folds"),
    ],
)
def test_a_call_that_cannot_be_right_leaves_nothing(trial: Trial, call: str, said: str) -> None:
    trial.sql("CREATE TABLE IF NOT EXISTS taken_folds (i integer)")
    before = tables(trial)
    with pytest.raises(psycopg2.Error, match=said):
        trial.sql(f"SELECT cerebro.ensemble({call})")
    assert tables(trial) == before


def test_train_folds_small_tables(trial: Trial) -> None:
    trial.notices()
    given = {"configs": 2, "epochs": 2, "nets": "linear", "exclude": ["price"]}
    options = json.dumps({**given, "folds": {"count": 2}})
    trial.sql("SELECT cerebro.train('rows', 'label', 'folds_named', options => %s)", options)
    assert " in 2 folds)" in trial.notices()
    trial.sql("SELECT cerebro.train('rows', 'label', 'usual', options => %s)", json.dumps(given))
    assert " in 5 folds)" in (said := trial.notices())
    # The search has its share of what packing leaves of a minute.
    assert 20 <= int(re.findall(r'"max_seconds": (\d+)', said)[0]) <= 35
    options = json.dumps({**given, "folds": False})
    trial.sql("SELECT cerebro.train('rows', 'label', 'none', options => %s)", options)
    assert "is the mean of " in (said := trial.notices()) and "folds" not in said


def test_the_same_call_trains_the_same_models_to_the_bit(trial: Trial) -> None:
    """The ranked list, the search near the best, the folds and the choice of models follow from the seed."""
    options = {"nets": ["linear", {"tabm": {"width": 8, "members": 2}}], "configs": 2, "epochs": 2}
    options = json.dumps({**options, "seed": 5, "folds": {"count": 2}})
    found = []
    for name in ("same_call", "same_again"):
        call = "SELECT net, value FROM cerebro.train('rows', 'label', %s, '5 minutes', %s)"
        board = trial.sql(call, name, options)
        joined = trial.value(f"SELECT model_weights FROM {name}_ensemble")
        found.append((board, trial.weights(name), bytes(joined)))
    assert "in 2 folds" in trial.notices()
    assert found[0] == found[1]


def test_named_folds_keep_together_what_validation_does(trial: Trial) -> None:
    trial.notices()
    options = json.dumps({"nets": "linear", "folds": 2, "validation": {"by": "id"}, "exclude": ["price"]})
    trial.sql("SELECT cerebro.prepare_train('rows', 'label', 'together', options => %s)", options)
    assert '"folds": {"count": 2, "by": "id"}' in trial.notices()


@pytest.mark.parametrize(
    ("folds", "said"),
    [({"count": 2, "by": "nobody"}, "nobody"), ({"count": 4, "by": "c"}, "a fold would have no rows")],
)
def test_wrong_folds_are_refused_before_the_search(trial: Trial, folds: dict[str, Any], said: str) -> None:
    options = json.dumps({"nets": "linear", "folds": folds, "exclude": ["price"]})
    with pytest.raises(psycopg2.Error, match=said):
        trial.sql("SELECT cerebro.prepare_train('rows', 'label', 'refused', options => %s)", options)
    assert trial.value("SELECT to_regclass('refused_packed')") is None


def test_folds_are_of_the_table_that_was_trained_on(trial: Trial) -> None:
    """Another schema, which comes first in the search_path later, has a table of the same name."""
    options = json.dumps({"nets": "linear", "configs": 2, "epochs": 2, "exclude": ["price"], "single": True})
    trial.sql("SELECT cerebro.train('rows', 'label', 'of_rows', options => %s)", options)
    trial.sql("CREATE SCHEMA other; CREATE TABLE other.rows AS SELECT * FROM rows LIMIT 60")
    path = trial.value("SHOW search_path")
    trial.sql(f"SET search_path = other, {path}")
    try:
        trial.notices()
        trial.sql("SELECT cerebro.ensemble('of_rows', 'of_rows_e', options => '{\"folds\": 2}')")
    finally:
        trial.sql(f"SET search_path = {path}")
    assert f"each of all {ROWS} rows" in trial.notices()


@pytest.mark.postgresql
def test_folds_use_the_sessions_of_the_search(trial: Trial) -> None:
    """The search, of many epochs, is worth other sessions; the folds, with few configs, are not."""
    trial.sql("CREATE TABLE more AS SELECT sin(i) AS x, i % 2 > 0 AS odd FROM generate_series(1, 1300) AS i")
    options = json.dumps({"configs": 20, "epochs": 50, "nets": "linear", "folds": 2, "segments": 2})
    trial.notices()
    trial.sql("SELECT cerebro.train('more', 'odd', 'more_model', '30 s', %s)", options)
    said = trial.notices()
    assert " in 2 folds)" in said and "uses only this session" not in said


def test_rows_in_the_order_of_time_are_not_folded(trial: Trial) -> None:
    trial.notices()
    given = {"configs": 2, "epochs": 2, "nets": "linear", "exclude": ["price"]}
    options = json.dumps({**given, "validation": {"after": "200", "on": "id"}})
    trial.sql("SELECT cerebro.train('rows', 'label', 'timely', options => %s)", options)
    assert "held-out rows measures" in trial.notices()


def test_finish_train_needs_what_prepare_train_has_made(trial: Trial) -> None:
    with pytest.raises(psycopg2.Error, match="nobody_packed_summary"):
        trial.sql("SELECT cerebro.finish_train('nobody')")
    trial.sql("CREATE TABLE mine_packed_summary AS SELECT * FROM held_summary")
    with pytest.raises(psycopg2.Error, match="does not say how its rows are to be trained on"):
        trial.sql("SELECT cerebro.finish_train('mine')")


def test_equal_rows_share_a_fold(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE twice AS SELECT a, b, c, label FROM rows UNION ALL SELECT a, b, c, label FROM rows"
    )
    options = {"columns": "auto", "folds": {"count": 4, "stratify": True}}
    trial.pack("twice", "twice_packed", "label", "a, b, c", options=options)
    seen = trial.sql(
        "SELECT __fold__, substr(independent_var, n * w * 4 + 1, w * 4) FROM (SELECT *,"
        " independent_var_shape[2] AS w, independent_var_shape[1] AS rows FROM twice_packed) AS t,"
        " generate_series(0, rows - 1) AS n"
    )
    folds: dict[bytes, set[int]] = {}
    for fold, row in seen:
        folds.setdefault(bytes(row), set()).add(fold)
    assert len(seen) == 2 * ROWS and len(folds) == ROWS
    assert all(len(found) == 1 for found in folds.values())


def test_too_few_values_of_a_column_are_not_folded(trial: Trial) -> None:
    trial.notices()
    given = {"configs": 2, "epochs": 2, "nets": "linear", "exclude": ["price"], "validation": {"by": "c"}}
    trial.sql("SELECT cerebro.train('rows', 'label', 'few', options => %s)", json.dumps(given))
    assert "held-out rows measures" in trial.notices()


def test_other_rows_are_answered_by_all_models_by_fold(trial: Trial) -> None:
    trial.sql("SELECT cerebro.validation_preprocessor_dl('rows', 'like', 'label', '*', 'crossed')")
    trial.notices()
    trial.sql("SELECT cerebro.ensemble('by_fold', 'elsewhere', packed_table => 'like')")
    assert "held-out rows measures" in trial.notices()


def test_folds_of_other_rows_say_nothing(trial: Trial) -> None:
    trial.sql("CREATE TABLE vectors AS SELECT ARRAY[a, b]::real[] AS x, label FROM rows")
    trial.pack("vectors", "vectors_packed", "label", "x")
    trial.pack("vectors", "vectors_crossed", "label", "x", options={"folds": 3})
    trial.sql("SELECT cerebro.load_net('vector_nets', 'vectors_packed', 'linear')")
    trial.select("vector_mst", [1], [ADAM], ["batch_size=16"], arch="vector_nets")
    trial.fit("vectors_packed", "vector_out", "vector_mst", 1)
    trial.notices()
    trial.sql("SELECT cerebro.ensemble('vector_out', 'vector_joined', packed_table => 'vectors_crossed')")
    assert "held-out rows measures" in trial.notices()


@pytest.mark.postgresql
def test_a_source_that_somebody_else_has_named_is_no_trap(trial: Trial, role: MakeRole) -> None:
    """A source table that is another role's view is refused: it would run code with the caller's rights."""
    other = role()
    trial.sql("CREATE FUNCTION spring() RETURNS integer LANGUAGE plpgsql AS $$BEGIN RAISE 'sprung'; END$$")
    trial.sql("CREATE VIEW trap AS SELECT *, spring() AS sprung FROM rows")
    pack(trial, "lent", {"validation": {"share": 0.25, "stratify": True}})
    trial.fit("lent", "lent_out", "held_mst", 1, validation_table="lent_validation")
    trial.sql("UPDATE lent_summary SET source_table = 'public.trap'")
    for what in ("VIEW trap", "TABLE lent_summary"):
        trial.sql(f'ALTER {what} OWNER TO "{other}"')
    with pytest.raises(psycopg2.Error, match="trap is no table, and somebody else owns it"):
        trial.sql("SELECT cerebro.ensemble('lent_out', 'lent_joined', options => '{\"folds\": 2}')")
    trial.sql("DROP VIEW trap")
    trial.sql("DROP TABLE lent_summary")


@pytest.mark.postgresql
def test_a_role_may_have_any_name(trial: Trial, role: MakeRole) -> None:
    other = role()
    odd = f'Odd "{other}'
    quoted = '"' + odd.replace('"', '""') + '"'
    trial.sql(f'ALTER ROLE "{other}" RENAME TO {quoted}')
    try:
        trial.sql(f"GRANT SELECT ON rows TO {quoted}")
        trial.sql(f"SET ROLE {quoted}")
        given = {"configs": 1, "epochs": 1, "nets": "linear", "exclude": ["price"]}
        trial.sql("SELECT cerebro.train('rows', 'label', 'odd', options => %s)", json.dumps(given))
        assert " in 5 folds)" in trial.notices()
    finally:
        trial.sql("RESET ROLE")
        trial.sql(f'ALTER ROLE {quoted} RENAME TO "{other}"')
