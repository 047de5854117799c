"""Option `folds` of packing and option `cross_validate` of a fit: a config leaves out each fold in turn."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, cancelled, rows_of

FEATURES, ROWS, FOLDS, EPOCHS = 6, 301, 3, 2


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(ROWS, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.sql(
        "CREATE TABLE people AS SELECT x, y, number, (number % 40)::integer AS person,"
        " 'part ' || number % 3 AS part FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )
    trial.pack("people", "packed", options={"folds": {"column": "part"}}, buffer_size=17)
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM, SGD], ["batch_size=10,epochs=1"])
    trial.fit("packed", "crossed", "configs", EPOCHS, options={"cross_validate": {"final": True}})


def folds_of(trial: Trial, packed: str) -> dict[int, set[tuple[float, ...]]]:
    found: dict[int, set[tuple[float, ...]]] = {}
    for fold, x, shape in trial.sql(f"SELECT __fold__, x, x_shape FROM {packed}"):
        rows = np.frombuffer(x, "<f4").reshape(shape)
        found.setdefault(fold, set()).update(tuple(row) for row in rows.tolist())
    return found


def packed(trial: Trial, folds: Any, source: str = "people", **more: Any) -> str:
    trial.sql("DROP TABLE IF EXISTS p, p_summary")
    trial.pack(source, "p", options={"folds": folds, **more})
    return "p"


def units(trial: Trial, out: str) -> dict[tuple[int, int | None], int]:
    """Return the `mst_key` of each config and fold of a run; the fold None stands for all rows."""
    return {
        (key, fold): number
        for number, key, fold in trial.sql(
            f"SELECT mst_key, config_key, fold FROM cerebro.progress JOIN {out}_summary USING (run_id)"
        )
    }


def test_every_row_is_in_one_fold_of_about_equal_size(trial: Trial) -> None:
    found = folds_of(trial, packed(trial, 5))
    assert sorted(found) == [1, 2, 3, 4, 5]
    assert sum(map(len, found.values())) == len(set.union(*found.values())) == ROWS
    assert all(0.6 < len(rows) / (ROWS / 5) < 1.4 for rows in found.values())
    assert trial.value("SELECT folds FROM p_summary") == 5
    trial.sql("CREATE TABLE turned AS SELECT * FROM people ORDER BY md5(x::text)")
    assert folds_of(trial, packed(trial, 5, "turned")) == found
    assert folds_of(trial, packed(trial, 5, seed=2)) != found


def test_rows_of_a_person_share_a_fold(trial: Trial) -> None:
    trial.sql("CREATE TABLE known AS SELECT ARRAY[person, random()] AS x, y, person FROM people")
    found = folds_of(trial, packed(trial, {"count": 4, "by": "person"}, "known"))
    people = [{row[0] for row in rows} for rows in found.values()]
    assert sum(map(len, people)) == len(set.union(*people)) == 40


def test_each_fold_has_its_share_of_each_class(trial: Trial) -> None:
    packed(trial, {"count": 4, "stratify": True})
    shares = [
        np.frombuffer(y, "<i2").reshape(shape).sum(axis=0)
        for y, shape in trial.sql("SELECT string_agg(y, '' ORDER BY buffer_id), ARRAY[-1, max(y_shape[2])]"
                                  " FROM p GROUP BY __fold__")
    ]  # fmt: skip
    assert len(shares) == 4
    assert np.ptp(np.array(shares), axis=0).max() <= 1


def test_the_buffers_of_a_fold_are_those_of_its_rows_packed_alone(trial: Trial) -> None:
    """The buffers outside a fold are the same as if the rows of the fold had never been packed."""
    trial.sql("CREATE VIEW fewer AS SELECT * FROM people WHERE part <> 'part 1'")
    trial.pack("fewer", "without", options={"folds": {"column": "part"}}, buffer_size=17)
    kept = "SELECT __dist_key__, x, y FROM {} WHERE {} ORDER BY __dist_key__, buffer_id"
    assert trial.sql(kept.format("packed", "__fold__ <> 2")) == trial.sql(kept.format("without", "TRUE"))


def test_what_is_trained_without_a_fold_equals_a_run_without_its_rows(trial: Trial) -> None:
    trial.fit("without", "alone", "configs", EPOCHS)
    expected, numbers = trial.weights("alone"), units(trial, "crossed")
    run_id = trial.value("SELECT run_id FROM crossed_summary")
    for key in (1, 2):
        state = trial.sql(
            "SELECT data FROM cerebro.config_state(%s, %s) WHERE kind = 'weight' ORDER BY number",
            run_id, numbers[key, 2],
        )  # fmt: skip
        assert b"".join(bytes(data) for (data,) in state) == expected[key]


def test_each_row_is_measured_once_by_a_model_that_has_not_seen_it(trial: Trial) -> None:
    visits = trial.sql(
        "SELECT p.fold, sum(v.rows)::int FROM cerebro.visits v"
        " JOIN cerebro.progress p USING (run_id, mst_key) JOIN crossed_summary USING (run_id)"
        " WHERE v.epoch = 1 AND p.config_key = 1 GROUP BY 1 ORDER BY 1"
    )
    sizes = {fold: len(rows) for fold, rows in folds_of(trial, "packed").items()}
    assert visits == [*((fold, ROWS - rows) for fold, rows in sorted(sizes.items())), (None, ROWS)]
    trial.sql("CREATE VIEW fold_two AS SELECT * FROM people WHERE part = 'part 1'")
    trial.pack_validation("fold_two", "held", "without")
    trial.call("madlib_evaluate", "alone", "held", "measured", False, 1)
    loss, accuracy = trial.sql("SELECT loss, metric FROM measured")[0]
    ours = trial.read_row(
        "SELECT i.* FROM crossed_info AS i WHERE mst_key = 1 AND fold = 2",
    )
    assert ours["validation_loss_final"] == pytest.approx(loss, rel=1e-5)
    assert ours["validation_metrics_final"] == pytest.approx(accuracy, rel=1e-5)


def test_the_leaderboard_has_the_mean_the_deviation_and_each_fold(trial: Trial) -> None:
    rows = trial.sql(
        "SELECT l.rank, l.mst_key, l.value, l.deviation, l.fold_values, l.dataset FROM cerebro.leaderboard l"
        " JOIN crossed_summary USING (run_id) ORDER BY rank"
    )
    assert [row[0] for row in rows] == [1, 2]
    assert sorted(row[1] for row in rows) == [1, 2]
    for _, key, value, deviation, folds, dataset in rows:
        said = trial.sql(
            "SELECT validation_metrics_final FROM crossed_info WHERE mst_key = %s AND fold IS NOT NULL"
            " ORDER BY fold",
            key,
        )
        values = [float(one) for one in folds.split(", ")]
        assert values == [one for (one,) in said]
        assert value == pytest.approx(np.mean(values))
        assert deviation == pytest.approx(np.std(values, ddof=1))
        assert dataset == "validation"


def test_the_final_model_is_that_of_all_rows(trial: Trial) -> None:
    trial.fit("packed", "all_rows", "configs", EPOCHS)
    assert trial.weights("crossed") == trial.weights("all_rows")
    trial.sql("DROP TABLE IF EXISTS predicted")
    trial.call(
        "madlib_predict", "crossed", "people", "person", "x", "predicted", pred_type="response", mst_key=1
    )
    assert trial.value("SELECT count(*) FROM predicted") == ROWS


def test_without_a_final_model_none_is_left(trial: Trial) -> None:
    trial.fit("packed", "measured_only", "configs", 1, options={"cross_validate": True})
    assert trial.value("SELECT count(*) FROM measured_only") == 0
    assert trial.value("SELECT count(*) FROM measured_only_info") == 2 * FOLDS


@pytest.mark.slow
def test_it_is_interrupted_and_goes_on_with_the_same_bits(trial: Trial) -> None:
    options = {"cross_validate": {"final": True}}
    with cancelled(trial, 8):
        trial.fit("packed", "again", "configs", 40, options=options)
    run_id = trial.value("SELECT max(run_id) FROM cerebro.runs")
    trial.sql("SELECT cerebro.resume(%s)", run_id)
    trial.fit("packed", "at_once", "configs", 40, options=options)
    assert trial.weights("again") == trial.weights("at_once")
    values = "SELECT mst_key, fold_values FROM cerebro.leaderboard JOIN {}_summary USING (run_id) ORDER BY 1"
    assert trial.sql(values.format("again")) == trial.sql(values.format("at_once"))


@pytest.mark.parametrize(
    ("folds", "message"),
    [
        (1, "option folds is 1"),
        (101, "option folds is 101"),
        ("five", "option folds"),
        ({}, "needs either count or column"),
        ({"count": 3, "column": "part"}, "needs either count or column"),
        ({"count": 3, "by": "person", "stratify": True}, "these keys exclude each other"),
        ({"column": "nothing"}, 'column "nothing" does not exist'),
        ({"column": "x"}, "cannot name folds"),
        ({"column": "number"}, "more than 100 values"),
        ({"fold": 3}, "option folds says fold"),
    ],
)
def test_wrong_folds_are_refused(trial: Trial, folds: Any, message: str) -> None:
    with pytest.raises(psycopg2.Error, match=message):
        packed(trial, folds)
    assert trial.value("SELECT to_regclass('p')") is None


def test_rows_without_a_fold_are_refused(trial: Trial) -> None:
    trial.sql("CREATE VIEW holes AS SELECT x, y, nullif(part, 'part 0') AS part FROM people")
    with pytest.raises(psycopg2.Error, match='column "part" is NULL in some rows'):
        packed(trial, {"column": "part"}, "holes")


def test_a_fold_without_rows_is_refused(trial: Trial) -> None:
    trial.sql("CREATE VIEW three AS SELECT * FROM people LIMIT 3")
    with pytest.raises(psycopg2.Error, match=r"fold \d+ of 50 has no rows"):
        packed(trial, 50, "three")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"validation_table": "held"}, "does not go with a validation table"),
        ({"warm_start": True}, "does not go with warm_start"),
        ({"options": {"target": 0.5}}, "does not go with option target"),
        ({"options": {"cross_validate": 3}}, "option cross_validate"),
    ],
)
def test_what_makes_no_sense_is_refused(trial: Trial, more: dict[str, Any], message: str) -> None:
    options = {"cross_validate": True, **more.pop("options", {})}
    with pytest.raises(psycopg2.Error, match=message):
        trial.fit(
            "packed", "crossed" if more.get("warm_start") else "none", "configs", 1, options=options, **more
        )


def test_rows_that_are_in_no_folds_are_refused(trial: Trial) -> None:
    trial.pack("blobs", "plain")
    with pytest.raises(psycopg2.Error, match="was not packed in folds") as refused:
        trial.fit("plain", "none", "configs", 1, options={"cross_validate": True})
    assert '{"folds": 5}' in str(refused.value)


def test_no_rows_are_added_to_a_table_in_folds(trial: Trial) -> None:
    with pytest.raises(psycopg2.Error, match="was packed in folds: no rows can be added"):
        trial.call("append_rows", "packed", "people")


def test_other_calls_do_not_cross_validate(trial: Trial) -> None:
    with pytest.raises(psycopg2.Error, match="cross_validate is for runs of several models"):
        trial.call(
            "madlib_fit", "packed", "single", "arch", 1, ADAM, "batch_size=10", 1,
            options={"cross_validate": True},
        )  # fmt: skip


def test_the_plan_knows_the_folds(trial: Trial) -> None:
    text = trial.value(
        "SELECT cerebro.explain_fit('packed', 'configs', 2, options => %s, format => 'json')",
        json.dumps({"seed": 7, "threads": 1, "cross_validate": {"final": True}}),
    )
    plan = json.loads(text)[0]["Plan"]
    assert plan["Visits"] == 2 * (FOLDS + 1) * 2 * 2
