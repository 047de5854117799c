"""The registry: versions of models never change, and calls take a model's name in place of a model table."""

from __future__ import annotations

import hashlib
from contextlib import closing

import psycopg2
import pytest

import nets
from fixtures import execute
from registered import ASKED, CONFIGS, answers, train
from trial import Trial


@pytest.fixture(scope="module", autouse=True)
def trained(trial: Trial) -> None:
    train(trial)


def test_a_version_answers_as_the_model_that_it_was_made_of_and_outlives_it(trial: Trial) -> None:
    one, two = answers(trial, "models", 1), answers(trial, "models", 2)
    assert one != two
    assert trial.value("SELECT cerebro.register('models', 'churn', 2, 'the slow one')") == 1
    assert trial.value("SELECT cerebro.register('models', 'churn', 1, tags => '{\"by\": \"test\"}')") == 2
    assert "churn alone still means churn@1" in trial.notices()
    put_away(trial)
    try:
        for model, expected in {"churn": two, "churn@1": two, "CHURN@default": two, "churn@2": one}.items():
            assert answers(trial, model) == expected
        trial.sql("SELECT cerebro.forget(cerebro.last_run())")
        if trial.topology != "greenplum":
            with closing(psycopg2.connect(trial.connection.dsn)) as other:
                assert execute(other, ASKED.format(key=""), "churn@2") == one
    finally:
        put_away(trial, back=True)


def put_away(trial: Trial, *, back: bool = False) -> None:
    """Rename the tables from which a version was made, so that no call finds them, or rename them back."""
    for name in ("models", "models_info", "models_summary", "packed", "packed_summary"):
        old, new = (f"away_{name}", name) if back else (name, f"away_{name}")
        trial.sql(f"ALTER TABLE {old} RENAME TO {new}")


def test_a_version_is_whole_and_weights_are_kept_once(trial: Trial) -> None:
    trial.sql("SELECT cerebro.register('models', 'same', 1), cerebro.register('models', 'same', 1)")
    weights = trial.weights("models")[1]
    digest = hashlib.sha256(weights).hexdigest()
    kept = trial.sql("SELECT data FROM cerebro._model_weights WHERE digest = %s", digest)
    assert [bytes(data) for (data,) in kept] == [weights]
    found = trial.read_row("SELECT * FROM cerebro.model_versions WHERE name = 'same' AND version = 2")
    assert (found["digest"], found["weights_bytes"]) == (digest, len(weights))
    info = trial.read_row("SELECT * FROM models_info WHERE mst_key = 1")
    assert found["metrics"]["validation"] == {
        "rows": "public.packed_validation",
        "loss": info["validation_loss_final"],
        "metric": "accuracy",
        "value": info["validation_metrics_final"],
    }
    assert found["metrics"]["training"]["loss"] == info["training_loss_final"]
    assert found["compile_params"] == info["compile_params"]
    lineage = found["lineage"]
    assert (lineage["mst_key"], lineage["seed"], lineage["source_table"]) == (1, 7, "public.packed")
    assert lineage["run_id"] == trial.value("SELECT run_id FROM models_summary")
    assert lineage["versions"]["keras"] and lineage["versions"]["cerebro"]


def test_every_door_takes_a_reference(trial: Trial) -> None:
    trial.sql("SELECT cerebro.register('models', 'doors', 1)")
    by_row = answers(trial, "doors")
    query = (
        "SELECT (p.source).id, p.class, p.probability FROM cerebro.predict_query("
        "%s, 'SELECT * FROM customers', NULL::customers) AS p ORDER BY 1"
    )
    if trial.topology != "greenplum":
        for one, other in zip(by_row, trial.sql(query, "doors@1"), strict=True):
            assert one[:2] == other[:2] and abs(one[2] - other[2]) < 1e-5
    put_away(trial)
    try:
        trial.call("madlib_predict", "doors", "customers", "id", "*", "said", "response")
        trial.call("madlib_evaluate", "doors@default", "packed_validation", "measured")
        matrix = trial.sql("SELECT * FROM cerebro.confusion_matrix('doors@1', 'packed_validation')")
    finally:
        put_away(trial, back=True)
    assert trial.sql("SELECT id, class_value FROM said ORDER BY 1") == [row[:2] for row in by_row]
    trial.call("madlib_evaluate", "models", "packed_validation", "expected", mst_key=1)
    assert trial.sql("TABLE measured") == trial.sql("TABLE expected")
    expected = trial.sql("SELECT * FROM cerebro.confusion_matrix('models', 'packed_validation', 1)")
    assert sorted(matrix) == sorted(expected)


@pytest.mark.postgresql
def test_an_array_is_predicted_by_a_reference(trial: Trial) -> None:
    trial.sql("CREATE TABLE points AS SELECT id, x, gone AS y FROM customers")
    trial.pack("points", "points_packed")
    trial.model(nets.mlp(2, 4, 2), "points_nets")
    trial.select("points_mst", [1], CONFIGS[:1], ["batch_size=32"], arch="points_nets")
    trial.fit("points_packed", "points_out", "points_mst", 1)
    trial.sql("SELECT cerebro.register('points_out', 'points_model')")
    asked = "SELECT id, p.* FROM points, cerebro.predict(%s, %s, x) AS p ORDER BY 1"
    expected = trial.sql(asked, "points_out", 1)
    assert trial.sql(asked, "points_model@1", None) == expected
    assert trial.sql(asked.replace("%s, %s", "'points_out'::regclass, 1")) == expected


def test_a_table_comes_before_a_model_of_its_name_and_a_mark_means_the_model(trial: Trial) -> None:
    slow, best = answers(trial, "models", 2), answers(trial, "models")
    trial.notices()
    trial.sql("SELECT cerebro.register('models', 'models', 2)")
    assert "models alone means the model table public.models" in trial.notices()
    assert answers(trial, "models") == best
    assert answers(trial, "models@default") == slow
    # A table of the model's name that is no model table does not hide the model.
    trial.sql("SELECT cerebro.register('models', 'customers', 2)")
    assert answers(trial, "customers") == slow


@pytest.mark.postgresql
def test_where_no_such_table_is_in_the_path_the_name_means_the_model(trial: Trial) -> None:
    slow, best = answers(trial, "models", 2), answers(trial, "models")
    trial.sql("SELECT cerebro.register('models', 'models', 2)")
    trial.sql("CREATE SCHEMA elsewhere; SET search_path = elsewhere")
    try:
        asked = ASKED.format(key="").replace("FROM customers", "FROM public.customers")
        assert trial.sql(asked, "models") == slow
        assert trial.sql(asked, "public.models") == best
    finally:
        trial.sql("RESET search_path")


WRONG = {
    "no name": ("cerebro.register('models', NULL)", "22004", "name of a model is NULL"),
    "an odd name": ("cerebro.register('models', 'a b')", "22023", "'a b' cannot be the name of a model"),
    "a reference as name": ("cerebro.register('models', 'a@1')", "22023", "cannot be the name of a model"),
    "no such table": ("cerebro.register('nowhere', 'a')", "42P01", "'nowhere' does not exist"),
    "no such config": ("cerebro.register('models', 'a', 9)", "22023", "mst_key 9 is not in"),
    "tags that are no object": ("cerebro.register('models', 'a', tags => '[1]')", "22023", "tags is"),
    "an ensemble of one": ("cerebro.ensemble('odd@1', 'x')", "55000", "odd@1 holds a single model"),
}


@pytest.mark.parametrize("call, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused(trial: Trial, call: str, code: str, text: str) -> None:
    if not trial.sql("SELECT FROM cerebro.models WHERE name = 'odd'"):
        trial.sql("SELECT cerebro.register('models', 'odd')")
    before = trial.value("SELECT count(*) FROM cerebro.model_versions")
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql(f"SELECT {call}")
    assert caught.value.pgcode == code and text in str(caught.value)
    assert trial.value("SELECT count(*) FROM cerebro.model_versions") == before


WRONG_FOR_ROWS = {
    "no such model": ("cerebro.predict('nobody@1', c)", "42704", "no registered model 'nobody@1'"),
    "no such version": ("cerebro.predict('odd@9', c)", "42704", "may use\nDETAIL:  odd has no version 9."),
    "no such alias": ("cerebro.predict('odd@champion', c)", "42704", "no alias champion; it has default."),
    "no reference": ("cerebro.predict('odd@', c)", "42704", "no registered model 'odd@'"),
    "two marks": ("cerebro.predict('odd@1@2', c)", "42704", "no registered model 'odd@1@2'"),
    "neither table nor model": ("cerebro.predict('nobody', c)", "42P01", "'nobody' does not exist"),
    "a key of a single model": ("cerebro.predict('odd@1', c, 2)", "22023", "odd@1 is a single model"),
}


@pytest.mark.postgresql
@pytest.mark.parametrize("call, code, text", WRONG_FOR_ROWS.values(), ids=WRONG_FOR_ROWS)
def test_a_reference_that_means_no_model_is_refused_where_rows_are_predicted(
    trial: Trial, call: str, code: str, text: str
) -> None:
    if not trial.sql("SELECT FROM cerebro.models WHERE name = 'odd'"):
        trial.sql("SELECT cerebro.register('models', 'odd')")
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql(f"SELECT {call} FROM customers AS c LIMIT 1")
    assert caught.value.pgcode == code and text in str(caught.value)


def test_nothing_is_registered_in_a_read_only_transaction(trial: Trial) -> None:
    with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction):
        trial.sql("BEGIN READ ONLY; SELECT cerebro.register('models', 'never')")
    trial.sql("ROLLBACK")
