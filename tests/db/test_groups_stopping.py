"""Early stopping of groups: a config is stopped on each group as in a run on the rows of this group."""

from __future__ import annotations

import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, cancelled, rows_of

FEATURES, ROWS, EPOCHS = 6, 240, 12
OPTIONS = {"patience": 2, "min_delta": 0.01, "restore_best": True, "seed": 3}
COUNTRIES = ["BE", "NL", None]
OF = "country IS NOT DISTINCT FROM %s"
ENDED = "mst_key, status, reason, training_loss_final, training_metrics_final"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(ROWS, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.sql(
        # Some labels say nothing, or every net would be right at last.
        "CREATE TABLE sales AS SELECT x, CASE WHEN number % 4 = 0 THEN number % 3 ELSE y END AS y,"
        " (ARRAY['NL', 'BE', NULL])[1 + number % 3] AS country"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )
    trial.pack("sales", "packed", options={"group_by": "country"})
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM, SGD], ["batch_size=10,epochs=1"])


@pytest.fixture(scope="module")
def stopped(trial: Trial) -> int:
    return trial.fit("packed", "models", "configs", EPOCHS, options=OPTIONS)


@pytest.mark.parametrize("country", COUNTRIES)
def test_a_group_is_stopped_as_in_a_run_of_its_own(trial: Trial, stopped: int, country: str | None) -> None:
    left = ["own", "own_packed", "own_packed_summary", "alone", "alone_info", "alone_summary"]
    trial.sql(f"DROP TABLE IF EXISTS {', '.join(left)}")
    trial.sql(f"CREATE TABLE own AS SELECT * FROM sales WHERE {OF}", country)
    trial.pack("own", "own_packed", options={"segments": 1})
    trial.fit("own_packed", "alone", "configs", EPOCHS, options=OPTIONS)
    ours = trial.sql(f"SELECT {ENDED} FROM models_info WHERE {OF} ORDER BY 1", country)
    theirs = trial.sql(f"SELECT {ENDED} FROM alone_info ORDER BY 1")
    assert [row[:3] for row in ours] == [row[:3] for row in theirs]
    for found, expected in zip(ours, theirs, strict=True):
        assert found[3:] == pytest.approx(expected[3:], rel=1e-6)
    kept = trial.sql(f"SELECT mst_key, model_weights FROM models WHERE {OF}", country)
    assert {key: bytes(data) for key, data in kept} == trial.weights("alone")


def test_some_are_stopped_and_the_log_says_why(trial: Trial, stopped: int) -> None:
    statuses = {row[0] for row in trial.sql("SELECT DISTINCT status FROM models_info")}
    assert "stopped" in statuses
    assert trial.value(
        "SELECT count(*) FROM cerebro.decisions WHERE run_id = %s AND decision = 'stop'", stopped
    ) == trial.value("SELECT count(*) FROM models_info WHERE status = 'stopped'")


@pytest.mark.slow
def test_a_run_that_was_interrupted_decides_the_same(trial: Trial, stopped: int) -> None:
    with cancelled(trial, 5):
        trial.fit("packed", "again", "configs", EPOCHS, options=OPTIONS)
    run_id = trial.value("SELECT run_id FROM cerebro.runs WHERE status = 'interrupted'")
    trial.sql("SELECT cerebro.resume(%s)", run_id)
    for rest in (f"country, {ENDED} FROM {{}}_info", "country, mst_key, md5(model_weights) FROM {}"):
        ours, theirs = (
            trial.sql(f"SELECT {rest.format(name)} ORDER BY 1, 2") for name in ("again", "models")
        )
        assert ours == theirs


def test_a_target_ends_each_group_by_itself(trial: Trial) -> None:
    trial.fit("packed", "good", "configs", EPOCHS, options={"target": 0.6, "seed": 3})
    found = trial.sql("SELECT reason, cardinality(training_loss) FROM good_info WHERE status = 'stopped'")
    assert found and {reason for reason, _ in found} == {"it reached the target"}
    assert len({epochs for _, epochs in found}) > 1


@pytest.mark.slow
def test_a_run_in_the_background_leaves_the_same_and_can_be_repeated(trial: Trial, stopped: int) -> None:
    trial.sql(
        "CREATE DOMAIN place AS text CHECK (VALUE <> 'nowhere');"
        " CREATE TABLE placed AS SELECT x, y, country::place FROM sales"
    )
    trial.pack("placed", "placed_packed", options={"group_by": "country"})
    trial.call(
        "madlib_fit_multiple_model", "placed_packed", "behind", "configs", EPOCHS,
        options={**OPTIONS, "background": True, "threads": 1},
    )  # fmt: skip
    assert trial.value("SELECT cerebro.wait(cerebro.last_run())") == "finished"
    weights = "SELECT country::text, mst_key, md5(model_weights) FROM {} ORDER BY 1, 2"
    assert trial.sql(weights.format("behind")) == trial.sql(weights.format("models"))
    # The session that wrote the table runs no code of user-defined types, so group columns are text.
    assert trial.value("SELECT pg_typeof(country)::text FROM behind LIMIT 1") == "text"
    trial.fit("packed", "repeated", "configs", EPOCHS, options={**OPTIONS, "replay": stopped})
    assert trial.sql(weights.format("repeated")) == trial.sql(weights.format("models"))
