"""Option `weight` of packing: a column says how much each row counts in training and in evaluations."""

from __future__ import annotations

import psycopg2
import pytest

import nets
from trial import Trial, blobs, rows_of

COMPILE = (
    "loss='categorical_crossentropy',optimizer='SGD(lr=0.01)',"
    "weighted_metrics=['accuracy','categorical_crossentropy']"
)


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(301, features=6)
    trial.table("once", "x real[], y integer", rows_of(x, y))
    trial.sql("ALTER TABLE once ADD COLUMN w integer")
    trial.sql("UPDATE once SET w = 1 + (ctid::text::point)[1]::int % 3")
    trial.sql("CREATE TABLE again AS SELECT x, y, 1 AS w FROM once, generate_series(1, once.w)")
    trial.model(nets.mlp(6, 4, 3))
    trial.select("configs", [1], [COMPILE], ["batch_size=16"])


def fit(trial: Trial, packed: str, out: str, **more: str) -> dict[str, float]:
    trial.fit(packed, out, "configs", 1, **more)
    return dict(
        trial.sql(
            "SELECT metric, value FROM cerebro.metrics WHERE run_id = cerebro.last_run()"
            " AND dataset = 'validation'"
        )
    )


def test_a_weight_of_two_is_a_row_twice(trial: Trial) -> None:
    trial.pack("once", "weighted", options={"weight": "w", "segments": 3})
    trial.call("validation_preprocessor_dl", "once", "weighted_v", "y", "x", "weighted")
    trial.call("validation_preprocessor_dl", "again", "repeated_v", "y", "x", "weighted")
    weighted = fit(trial, "weighted", "m1", validation_table="weighted_v")
    repeated = fit(trial, "weighted", "m2", validation_table="repeated_v")
    assert trial.weights("m1") == trial.weights("m2")
    for metric in ("accuracy", "categorical_crossentropy"):
        assert weighted[metric] == pytest.approx(repeated[metric], rel=1e-6)
    # Keras divides the loss by the number of rows, not by their weights.
    rows, copies = (trial.value(f"SELECT count(*) FROM {table}") for table in ("once", "again"))
    assert weighted["loss"] * rows == pytest.approx(repeated["loss"] * copies, rel=1e-6)


def test_weights_change_what_is_learned(trial: Trial) -> None:
    trial.pack("once", "plain")
    trial.pack("once", "heavy", options={"weight": "w"})
    for table in ("plain", "heavy"):
        trial.fit(table, f"of_{table}", "configs", 1)
    assert trial.weights("of_plain") != trial.weights("of_heavy")
    assert trial.sql("SELECT weight_varname FROM heavy_summary") == [("w",)]
    assert trial.sql("SELECT weight_varname FROM plain_summary") == [(None,)]


@pytest.mark.parametrize(
    "made, code, text",
    [
        ("-1", "22023", 'column "w" holds the weight -1'),
        ("NULL::int", "22004", 'column "w" is NULL'),
        ("'x'::text", "42804", 'column "w" of type text cannot be a weight'),
    ],
)
def test_what_can_be_no_weight_is_refused(trial: Trial, made: str, code: str, text: str) -> None:
    trial.sql("DROP VIEW IF EXISTS wrong")
    trial.sql(f"CREATE VIEW wrong AS SELECT x, y, CASE WHEN y = 1 THEN {made} ELSE {made} END AS w FROM once")
    with pytest.raises(psycopg2.Error) as caught:
        trial.pack("wrong", "never", options={"weight": "w"})
    assert (caught.value.pgcode, text in str(caught.value)) == (code, True), caught.value
    assert trial.value("SELECT to_regclass('never')") is None
