"""Citus: tables that a user has distributed over the workers can be packed, trained on and predicted."""

from __future__ import annotations

import psycopg2
import pytest

from trial import ADAM, Trial

pytestmark = pytest.mark.citus
ROWS, HELD_OUT = 2000, 0.2
MADE = f"""SELECT k AS id, sin(k) AS size, k % 13 AS number,
    (ARRAY['red', 'green', 'blue', NULL])[1 + k % 4] AS colour,
    CASE WHEN sin(k) + k % 3 > 1 THEN 'yes' ELSE 'no' END AS answer FROM generate_series(1, {ROWS}) AS k"""
CLASSES = "SELECT r.id, p.class FROM {rows} AS r, cerebro.predict('models', r) AS p ORDER BY 1"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    """Make two tables of the same rows: `spread` is on all workers, `whole` on the coordinator alone."""
    trial.sql(f"CREATE TABLE spread AS {MADE}")
    trial.sql("SELECT create_distributed_table('spread', 'id')")
    trial.sql(f"CREATE TABLE whole AS {MADE}")


@pytest.fixture(scope="module")
def models(trial: Trial) -> None:
    trial.pack("spread", "packed", "answer", "*", options={"columns": "auto", "segments": 3})
    trial.call("load_net", "arch", "packed", "linear")
    trial.select("mst", [1], [ADAM], ["batch_size=64,epochs=1"])
    trial.fit("packed", "models", "mst", 2)


def test_columns_become_the_same(trial: Trial) -> None:
    """No column of a distributed table counts as rising in storage order: each shard has its own order."""
    described = "SELECT column_name, nulls, distinct_values, minimum, maximum, becomes, reason"
    spread, whole = (
        trial.sql(f"{described} FROM cerebro.describe_columns(%s) ORDER BY 1", table)
        for table in ("spread", "whole")
    )
    assert spread == whole


@pytest.mark.parametrize("stratify", [False, True])
def test_a_share_of_rows_is_held_out(trial: Trial, stratify: bool) -> None:
    packed = f"shared_{stratify}"
    validation = {"share": HELD_OUT, "stratify": stratify}
    trial.pack("spread", packed, "answer", "*", options={"columns": "auto", "validation": validation})
    kept, held = (trial.value(f"SELECT total_rows FROM {packed}{end}_summary") for end in ("", "_validation"))
    assert kept + held == ROWS
    assert held == pytest.approx(HELD_OUT * ROWS, abs=1 if stratify else 60)


def test_rows_that_are_used_of_a_large_table_are_copied(trial: Trial) -> None:
    columns = ", ".join(f"(sin(i) * {n})::real AS c{n}" for n in range(1, 20))
    trial.sql(
        f"CREATE TABLE large AS SELECT i AS id, {columns}, i % 2 > 0 AS odd"
        " FROM generate_series(1, 30000) AS i"
    )
    trial.sql("SELECT create_distributed_table('large', 'id')")
    trial.value("SELECT cerebro.prepare_train('large', 'odd', 'large_m', '1 s', '{\"nets\": \"linear\"}')")
    kept, held = (
        trial.value(f"SELECT total_rows FROM large_m_packed{end}_summary") for end in ("", "_validation")
    )
    assert kept + held == pytest.approx(0.4 * 30000, rel=0.02)
    assert trial.value("SELECT count(*) FROM pg_class WHERE relname ~ '^_[0-9a-f]{32}$'") == 0


def test_a_query_is_predicted_wherever_its_rows_lie(trial: Trial, models: None) -> None:
    """Each way to predict a query returns the classes that `madlib_predict` returns."""
    trial.call("madlib_predict", "models", "whole", "id", "*", "told", "response", mst_key=1)
    expected = trial.sql("SELECT id, class_value FROM told ORDER BY id")
    by_query = """SELECT (p.source).id, p.class
        FROM cerebro.predict_query('models', 'SELECT * FROM spread', NULL::spread) AS p ORDER BY 1"""
    assert trial.sql(by_query) == expected
    assert trial.sql(CLASSES.format(rows="(SELECT * FROM spread OFFSET 0)")) == expected
    with pytest.raises(psycopg2.errors.UndefinedTable) as caught:
        trial.sql(CLASSES.format(rows="spread"))
    assert "OFFSET 0" in str(caught.value.diag.message_hint)
    for table in ("models", "models_summary", "models_info"):
        trial.sql("SELECT create_reference_table(%s)", table)
    assert trial.sql(CLASSES.format(rows="spread")) == expected
