"""Models of groups whose nets have different outputs: each answers as it was trained."""

from __future__ import annotations

import pytest

import nets
from trial import Trial, blobs, rows_of

FEATURES, ROWS = 6, 120
OPTIMIZER = "optimizer='Adam(lr=0.01)',metrics=['accuracy']"
LOSSES = (
    "loss='binary_crossentropy'",
    "loss='BinaryCrossentropy(from_logits=True)'",
    "loss='categorical_crossentropy'",
)


@pytest.fixture(scope="module", autouse=True)
def models(trial: Trial) -> None:
    """Train a sigmoid, a unit of logits and a softmax on the rows of three shops; keep one for each shop."""
    x, y = blobs(ROWS, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.sql(
        "CREATE TABLE sales AS SELECT row_number() OVER () AS id, x, y = 1 AS yes, chr(97 + n % 3) AS shop"
        " FROM (SELECT *, row_number() OVER ()::int AS n FROM blobs) AS b"
    )
    trial.pack("sales", "packed", y="yes", options={"group_by": "shop"})
    shapes = [(1, "sigmoid"), (1, "linear"), (2, "softmax")]
    for number, (units, activation) in enumerate(shapes, 1):
        trial.model(nets.mlp(FEATURES, outputs=units, activation=activation))
        trial.select(f"of_{number}", [number], [f"{LOSSES[number - 1]},{OPTIMIZER}"], ["batch_size=10"])
    trial.sql("CREATE TABLE configs AS SELECT * FROM of_1")
    for number in (2, 3):
        columns = "model_id, compile_params, fit_params"
        trial.sql(f"INSERT INTO configs SELECT {number}, {columns} FROM of_{number}")
    trial.sql("CREATE TABLE configs_summary AS SELECT * FROM of_1_summary")
    trial.fit("packed", "models", "configs", 2)
    for table in ("models", "models_info"):
        trial.sql(f"DELETE FROM {table} WHERE mst_key <> ascii(shop) - 96")


# Greenplum has no predictions in queries.
@pytest.mark.postgresql
def test_all_doors_give_the_same_probabilities(trial: Trial) -> None:
    by_row = trial.sql(
        "SELECT s.id, p.class, p.probability FROM sales s, cerebro.predict('models', s) p ORDER BY 1"
    )
    assert {kind for _, kind, _ in by_row} == {"true", "false"}
    by_query = trial.sql(
        "SELECT (q.source).id, q.class, q.probability"
        " FROM cerebro.predict_query('models', 'SELECT * FROM sales', NULL::sales) q ORDER BY 1"
    )
    trial.sql("SELECT cerebro.madlib_predict('models', 'sales', 'id', 'x', 'told', 'prob')")
    by_table = trial.sql("SELECT DISTINCT ON (id) id, class_value, prob FROM told ORDER BY id, prob DESC")
    for found in (by_query, by_table):
        assert [row[:2] for row in found] == [row[:2] for row in by_row]
        assert [row[2] for row in found] == pytest.approx([row[2] for row in by_row], abs=1e-5)


def test_a_run_goes_on_after_one_that_left_groups_out(trial: Trial) -> None:
    """Groups that were left out have no engine."""
    trial.sql("DELETE FROM sales WHERE shop = 'c' AND id > 9")
    trial.pack("sales", "uneven", y="yes", options={"group_by": "shop"})
    for warm in (False, True):
        trial.fit("uneven", "rest", "of_1", 1, warm_start=warm, options={"min_rows": 10})
    assert trial.sql("SELECT DISTINCT status FROM rest_info ORDER BY 1") == [("finished",), ("left out",)]
