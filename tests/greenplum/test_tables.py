"""The storage of tables: the extension's own tables are heap tables; users' tables may be of any kind."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing

import psycopg2
import pytest
from psycopg2 import sql as syntax

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.greenplum
FEATURES = 12


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(600, features=FEATURES)
    trial.table(
        "blobs", "id integer, x real[], y integer", [(i, *row) for i, row in enumerate(rows_of(x, y))]
    )
    trial.pack("blobs", "packed", options={"segments": 3})
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM, SGD], ["batch_size=16,epochs=1"])


@pytest.mark.parametrize("method", ["ao_column", "ao_row"])
def test_our_tables_are_heap_whatever_the_default(trial: Trial, method: str) -> None:
    name = f"cerebro_{method}_{os.getpid()}"
    trial.sql(
        syntax.SQL("CREATE DATABASE {} TEMPLATE template0")
        .format(syntax.Identifier(name))
        .as_string(trial.connection)
    )
    try:
        trial.sql(f"ALTER DATABASE {name} SET default_table_access_method = {method}")
        with closing(psycopg2.connect(dbname=name)) as connection:
            connection.autocommit = True
            there = Trial(connection)
            _whole_job(there, method)
    finally:
        trial.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", name)
        trial.sql(f"DROP DATABASE {name}")


def _whole_job(there: Trial, method: str) -> None:
    there.sql("CREATE EXTENSION cerebro CASCADE")
    x, y = blobs(600, features=FEATURES)
    there.table(
        "blobs", "id integer, x real[], y integer", [(i, *row) for i, row in enumerate(rows_of(x, y))]
    )
    assert (
        there.value(
            "SELECT amname FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam WHERE relname = 'blobs'"
        )
        == method
    )
    there.sql("CREATE VIEW ordered AS SELECT * FROM blobs ORDER BY id LIMIT 500")
    there.pack("ordered", "packed", options={"segments": 3})
    there.pack_validation("blobs", "held_out", "packed")
    there.model(nets.mlp(FEATURES))
    there.model(nets.mlp(FEATURES))
    there.call("delete_keras_model", "arch", 2)
    there.call("hyperband_schedule", "rungs", 9)
    there.select("mst", [1], [ADAM, SGD], ["batch_size=16,epochs=1"])
    there.fit("packed", "models", "mst", 2, validation_table="held_out")
    there.call("madlib_fit", "packed", "one", "arch", 1, ADAM, "batch_size=16,epochs=1", 1)
    there.call("madlib_evaluate", "models", "held_out", "measured", False, 1)
    there.call("madlib_predict", "models", "blobs", "id", "x", "predicted", "prob", False, 1)
    there.sql("SELECT cerebro.forget(%s)", there.value("SELECT run_id FROM models_summary"))
    others = there.sql(
        "SELECT relname FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam WHERE relkind = 'r'"
        " AND relnamespace IN ('public'::regnamespace, 'cerebro'::regnamespace) AND amname <> 'heap'"
    )
    assert others == [("blobs",)]


_KEPT = {
    "cerebro.segments_ready()": "segment integer, host text, ok boolean",
    "cerebro.diagnose()": "item text, status text",
    "cerebro.config_state(cerebro.last_run(), 1)": "number integer, name text, shape integer[], data bytea",
}


@pytest.mark.parametrize("function", _KEPT)
def test_a_table_is_made_of_what_a_function_gives_as_the_docs_say(trial: Trial, function: str) -> None:
    """CREATE TABLE AS SELECT of the function is refused, because a segment might run it and see less."""
    if "config_state" in function:
        trial.fit("packed", "models", "mst", 1)
    trial.sql("DROP TABLE IF EXISTS made, refused")
    for statement in ("CREATE TABLE refused AS", "CREATE TEMP TABLE refused AS"):
        with pytest.raises(psycopg2.errors.FeatureNotSupported, match="cannot call this function"):
            trial.sql(f"{statement} SELECT * FROM {function}")
    columns = _KEPT[function]
    trial.sql(
        f"CREATE TABLE made AS SELECT * FROM json_to_recordset("
        f"(SELECT json_agg(f) FROM {function} AS f)) AS f ({columns})"
    )
    names = ", ".join(column.split()[0] for column in columns.split(", "))
    expected = sorted(map(_plain, trial.sql(f"SELECT {names} FROM {function}")))
    assert sorted(map(_plain, trial.sql("SELECT * FROM made"))) == expected
    assert len(expected) > 3


def _plain(row: tuple[object, ...]) -> str:
    return str([bytes(field) if isinstance(field, memoryview) else field for field in row])


@pytest.mark.parametrize(
    "how",
    [
        "DISTRIBUTED RANDOMLY",
        "USING ao_row DISTRIBUTED BY (__dist_key__)",
        "DISTRIBUTED REPLICATED",
        "USING ao_column DISTRIBUTED RANDOMLY",
        "DISTRIBUTED BY (buffer_id)",
    ],
)
def test_a_copy_that_lies_otherwise_is_refused_with_the_way_out(trial: Trial, how: str) -> None:
    using, _, where = how.rpartition("DISTRIBUTED")
    trial.sql("DROP TABLE IF EXISTS copied, copied_summary, of_copy, of_copy_info, of_copy_summary")
    trial.sql(f"CREATE TABLE copied {using} AS SELECT * FROM packed DISTRIBUTED{where}")
    trial.sql("CREATE TABLE copied_summary AS SELECT * FROM packed_summary DISTRIBUTED REPLICATED")
    before = trial.value("SELECT count(*) FROM cerebro.runs")
    for given in ({"source": "copied"}, {"source": "packed", "validation_table": "copied"}):
        with pytest.raises(psycopg2.errors.WrongObjectType, match="copied does not lie") as caught:
            trial.fit(given.pop("source"), "of_copy", "mst", 1, **given)
    assert trial.value("SELECT count(*) FROM cerebro.runs") == before
    _, _, hint = (caught.value.diag.message_hint or "").partition(": ")
    trial.sql("DROP TABLE IF EXISTS again, again_summary")
    trial.sql(hint.replace("…", "again"))
    trial.sql("CREATE TABLE again_summary AS SELECT * FROM packed_summary DISTRIBUTED REPLICATED")
    trial.fit("again", "of_copy", "mst", 1)


def test_a_restored_dump_says_nothing_and_its_tables_are_closed(trial: Trial, database: str) -> None:
    trial.fit("packed", "dumped", "mst", 1)
    name, role = f"cerebro_restored_{os.getpid()}", f"cerebro_granted_{os.getpid()}"
    trial.sql(f"CREATE DATABASE {name} TEMPLATE template0")
    try:
        dump = subprocess.run(["pg_dump", database], capture_output=True, check=True)
        restore = ["psql", "-X", "-q", "-d", name]
        restored = subprocess.run(restore, input=dump.stdout, capture_output=True, check=True)
        assert b"ERROR" not in restored.stderr
        with closing(psycopg2.connect(dbname=name)) as connection:
            connection.autocommit = True
            there = Trial(connection)
            there.sql(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA cerebro TO {role}")
            there.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA cerebro TO {role}")
            rows = "SELECT count(*) FROM cerebro._run"
            assert there.value(rows) == trial.value(rows) > 0
            there.sql(f"SET ROLE {role}")
            assert there.value(rows) == 0
            there.sql(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")
    finally:
        trial.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", name)
        trial.sql(f"DROP DATABASE {name}")


@pytest.mark.parametrize("number", [1, 40])
def test_few_rows_that_the_planner_has_counted_stay_where_they_are(trial: Trial, number: int) -> None:
    """The planner would otherwise gather so few rows, and compute their packing on the coordinator."""
    trial.sql("DROP TABLE IF EXISTS few, few_packed, few_packed_summary, few_told")
    trial.sql(f"CREATE TABLE few AS SELECT * FROM blobs ORDER BY id LIMIT {number} DISTRIBUTED BY (id)")
    trial.sql("ANALYZE few")
    trial.pack("few", "few_packed", options={"segments": 3, "task": "classification"})
    assert trial.value("SELECT sum(x_shape[1]) FROM few_packed") == number
