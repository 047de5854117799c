"""A role without runs learns nothing from the views about the runs and models of other roles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg2
import pytest
from psycopg2 import sql

from fixtures import Connection, execute
from stage import Stage, connect, stage

pytestmark = pytest.mark.slow

VIEWS = (
    "costs",
    "decisions",
    "functions",
    "groups",
    "leaderboard",
    "metrics",
    "model_health",
    "model_history",
    "model_versions",
    "models",
    "progress",
    "runs",
    "schedule_runs",
    "schedules",
    "sizes",
    "visits",
)
# Numbers of configs, epochs and segments are no secrets: anybody can guess them.
KEYS = {"mst_key", "epoch", "segment", "step", "number"}
LOSS = "from keras import ops\n\ndef secret_loss(y_true, y_pred):\n    return ops.mean(y_true - y_pred)\n"
# As cerebro.schedule leaves them, where there is a pg_cron.
SCHEDULED = (
    ("_schedule", "schedule, job_id, source, promote", "'0 3 * * 1', 7, 'others.secret_rows', 'never'"),
    ("_schedule_run", "pid, outcome, version, reason", "1, 'failed', 2, 'secret_rows is gone'"),
)


@dataclass(frozen=True)
class Scene:
    stage: Stage
    login: Connection
    run_id: int


@pytest.fixture(scope="module")
def scene(database: str) -> Iterator[Scene]:
    with stage(database) as made:
        victim, stranger = made.role("victim"), made.role("stranger")
        made.lab(victim, "others")
        with made.acting(victim):
            run_id = made.fit("others")
            made.sql("SELECT cerebro.register('others.m', 'secret_model')")
            made.sql("SELECT cerebro.check('secret_model', 'others.held')")
        for table, columns, values in SCHEDULED:
            made.sql(f"INSERT INTO cerebro.{table} (name, alias, role, {columns}) VALUES"
                     f" ('secret_model', 'default', %s, {values})", victim)  # fmt: skip
        made.sql("SELECT cerebro.register_function('secret_loss', %s, 'loss')", LOSS)
        with closing(connect(database, stranger)) as login:
            yield Scene(made, login, run_id)


def _scanned(login: Connection, query: sql.Composable) -> list[tuple[str, int]]:
    """Return the extension's tables that a query reads, and the number of rows that it found in each."""
    # With many runs, the planner would read the tables with the data first; these settings enforce this.
    for way in ("hashjoin", "mergejoin", "material", "seqscan"):
        execute(login, f"SET enable_{way} = off")
    ((plan,),) = execute(
        login, sql.SQL("EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF, FORMAT JSON) {}").format(query)
    )
    found: list[tuple[str, int]] = []

    def walk(node: dict[str, Any]) -> None:
        if node.get("Relation Name", "").startswith("_"):
            found.append((node["Relation Name"], int(node["Actual Rows"] * node["Actual Loops"])))
        for inner in node.get("Plans", []):
            walk(inner)

    walk((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
    return sorted(found)


@pytest.mark.parametrize("view", VIEWS)
def test_a_plan_tells_nothing_of_what_its_reader_may_not_see(scene: Scene, view: str) -> None:
    """EXPLAIN ANALYZE shows the same counts for a condition that matches another role's row and its opposite.

    The planner may evaluate a leakproof condition below the join that checks who may see the row.
    """
    rows = scene.stage.sql(f"SELECT row_to_json(v)::text FROM cerebro.{view} AS v LIMIT 1")
    seen = json.loads(str(rows[0][0])) if rows else {}
    assert seen or view in ("decisions", "groups")
    assert not execute(scene.login, f"SELECT FROM cerebro.{view}")
    # Conditions on columns that are no secrets make the planner read the tables with the data first.
    known = [sql.SQL("{} = {}").format(sql.Identifier(c), sql.Literal(seen[c])) for c in seen if c in KEYS]
    if "run_id" in seen:
        known.append(sql.SQL("run_id > {0} - 1 AND run_id < {0} + 1").format(sql.Literal(seen["run_id"])))
    for column in sorted(seen.keys() - KEYS - {"run_id"}):
        if isinstance(seen[column], str | int | float):
            plans = [
                _scanned(scene.login, _query(view, [*known, _condition(column, way, seen[column])]))
                for way in ("=", "<>")
            ]
            assert plans[0] == plans[1], column


def _query(view: str, conditions: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL("SELECT * FROM cerebro.{} WHERE {}").format(
        sql.Identifier(view), sql.SQL(" AND ").join(conditions)
    )


def _condition(column: str, way: str, value: object) -> sql.Composable:
    return sql.SQL("{} {} {}").format(sql.Identifier(column), sql.SQL(way), sql.Literal(value))


@pytest.mark.parametrize("right", ["pg_read_all_data", "pg_write_all_data"])
def test_settings_are_for_their_owner_alone(scene: Scene, database: str, right: str) -> None:
    if scene.login.server_version < 140000:
        pytest.skip("the role came with PostgreSQL 14")
    scene.stage.sql("INSERT INTO cerebro.settings VALUES ('connection', 'password=hunter2')")
    try:
        keen = scene.stage.role(right.removeprefix("pg_"))
        scene.stage.sql(f"GRANT {right} TO {keen}")
        with closing(connect(database, keen)) as login:
            if right == "pg_read_all_data":
                assert not execute(login, "SELECT * FROM cerebro.settings")
            else:
                with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                    execute(login, "INSERT INTO cerebro.settings VALUES ('backend', 'jax')")
    finally:
        scene.stage.sql("DELETE FROM cerebro.settings WHERE name = 'connection'")
