"""The views of schema cerebro, read by other sessions during a run and after it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg2
import pytest
from psycopg2.extras import RealDictCursor

import nets
import reference
from fixtures import Connection, Rows, execute
from trial import ADAM, SGD, Trial, blobs, rows_of

FEATURES, EPOCHS, SEGMENTS = 12, 6, 2
VIEWS = ("runs", "progress", "visits", "metrics", "leaderboard")
WATCHER, STRANGER, MONITOR, USER = "views_watcher", "views_stranger", "views_monitor", "views_user"


@pytest.fixture(scope="module", autouse=True)
def roles(trial: Trial) -> Iterator[None]:
    """Create four roles: USER trains, WATCHER is a member of USER, and MONITOR one of pg_monitor."""
    names = (USER, WATCHER, STRANGER, MONITOR)
    for name in names:
        trial.sql(f"CREATE ROLE {name} LOGIN")
        trial.sql("SELECT cerebro.grant_usage(%s)", name)
    trial.sql(
        f"GRANT CREATE ON SCHEMA public TO {USER}; GRANT {USER} TO {WATCHER}; GRANT pg_monitor TO {MONITOR}"
    )
    yield
    trial.sql(f"DROP OWNED BY {', '.join(names)} CASCADE")
    trial.sql(f"DROP ROLE {WATCHER}, {STRANGER}, {MONITOR}, {USER}")


@pytest.fixture(scope="module")
def user(roles: None, database: str, greenplum: bool) -> Iterator[Trial]:
    # A cluster takes longer for each reading, so there the run does too.
    passes = 160 if greenplum else 12
    with closing(psycopg2.connect(dbname=database, user=USER)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.table("blobs", "x real[], y integer", rows_of(*blobs(200, features=FEATURES)))
        trial.pack("blobs", "packed")
        trial.model(nets.mlp(FEATURES))
        fits = [f"batch_size={size},epochs={passes}" for size in (1, 2)]
        trial.select("mst", [1], [ADAM, SGD.replace("0.1", "0.01")], fits)
        yield trial


@dataclass
class Seen:
    """The rows of each view at each reading during a run, with names of sessions and counts by role."""

    run_id: int = 0
    rows: dict[str, list[list[dict[str, Any]]]] = field(default_factory=lambda: {view: [] for view in VIEWS})
    names: set[str] = field(default_factory=set)
    counts: dict[str, list[int]] = field(default_factory=lambda: {WATCHER: [], STRANGER: [], MONITOR: []})


@pytest.fixture(scope="module")
def seen(user: Trial, database: str) -> Seen:
    """The rows of the views, read by other sessions while a run goes on."""
    with ThreadPoolExecutor() as pool:
        run = pool.submit(user.fit, "packed", "watched", "mst", EPOCHS, metrics_compute_frequency=2)
        found = watch(run, lambda role: psycopg2.connect(dbname=database, user=role))
        found.run_id = run.result(timeout=120)
    return found


def watch(run: Future[int], connect: Callable[[str], Connection]) -> Seen:
    found = Seen()
    with closing(connect(USER)) as own, closing(connect(os.environ["PGUSER"])) as all_seeing:
        others = {role: connect(role) for role in found.counts}
        for connection in (own, all_seeing, *others.values()):
            connection.autocommit = True
        while not run.done():
            for view in VIEWS:
                found.rows[view].append(as_dicts(own, f"SELECT * FROM cerebro.{view}"))
            found.names |= {name for (name,) in execute(all_seeing, ACTIVITY)}
            for role, connection in others.items():
                found.counts[role].append(execute(connection, "SELECT count(*) FROM cerebro.progress")[0][0])
            time.sleep(0.01)
        for connection in others.values():
            connection.close()
    return found


ACTIVITY = "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"


def as_dicts(connection: Connection, query: str) -> list[dict[str, Any]]:
    with connection.cursor(cursor_factory=RealDictCursor) as cursor:
        cursor.execute(query)
        return [dict(row) for row in cursor.fetchall()]


def while_running(seen: Seen, view: str) -> list[dict[str, Any]]:
    return [row for reading in seen.rows[view] for row in reading]


def test_runs_while_it_goes_on(seen: Seen, user: Trial) -> None:
    rows = [row for row in while_running(seen, "runs") if row["status"] == "running"]
    done = [row["visits_done"] for row in rows]
    assert done == sorted(done)
    assert len(set(done)) > 10, "it shows few steps of the way"
    assert {row["visits_total"] for row in rows} == {4 * EPOCHS * SEGMENTS}
    assert all(row["ended_at"] is None and row["seconds"] >= 0 for row in rows)
    found = {(row["owner"], row["run_id"], row["topology"]) for row in rows}
    assert found == {(USER, seen.run_id, user.topology)}
    assert {row["status"] for row in while_running(seen, "runs")} <= {"running", "finished"}


def test_progress_while_it_goes_on(seen: Seen) -> None:
    rows = while_running(seen, "progress")
    assert {"training", "waiting"} <= {row["status"] for row in rows}
    assert {row["epoch"] for row in rows} == set(range(1, EPOCHS + 1))
    training = [row for row in rows if row["status"] == "training"]
    assert {row["segment"] for row in training} == {0, 1}
    assert all(row["segment"] is None for row in rows if row["status"] == "waiting")
    later = [row for row in training if row["visits_done"]]
    assert all(row["loss"] > 0 and row["seconds_left"] != 0 for row in later)
    assert any(row["seconds_left"] for row in later)


def test_progress_counts_up_for_each_config(seen: Seen) -> None:
    for key in range(1, 5):
        done = [row["visits_done"] for row in while_running(seen, "progress") if row["mst_key"] == key]
        assert done == sorted(done)
        assert len(set(done)) > 3


def test_no_config_is_on_two_segments_at_once(seen: Seen) -> None:
    for reading in seen.rows["progress"]:
        segments = [row["segment"] for row in reading if row["status"] == "training"]
        assert len(segments) == len(set(segments)) <= SEGMENTS


@pytest.mark.parametrize("view", ["visits", "metrics", "leaderboard"])
def test_rows_appear_one_after_the_other(seen: Seen, view: str) -> None:
    counts = [len([r for r in reading if r.get("value", True) is not None]) for reading in seen.rows[view]]
    assert counts == sorted(counts)
    assert len(set(counts)) > 2


def test_application_names_say_what_sessions_do(seen: Seen) -> None:
    shown = {name.split(" run=")[0] for name in seen.names if name.startswith("cerebro")}
    assert {"cerebro visit", "cerebro idle"} <= shown
    visits = {name for name in seen.names if name.startswith("cerebro visit")}
    named = re.compile(rf"cerebro visit run={seen.run_id} config=[1-4] epoch=[1-{EPOCHS}] segment=[01]")
    assert all(named.fullmatch(name) for name in visits)
    assert len(visits) > 10


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_asked_for_the_last_run(seen: Seen, user: Trial, view: str) -> None:
    """On Greenplum, segments check the condition, although segments do not know the last run."""
    rows = user.sql(f"SELECT DISTINCT run_id FROM cerebro.{view} WHERE run_id = cerebro.last_run()")
    assert rows == [(seen.run_id,)]


def test_who_sees_the_run_while_it_goes_on(seen: Seen) -> None:
    assert max(seen.counts[WATCHER]) == 4
    assert max(seen.counts[MONITOR]) == 4
    assert max(seen.counts[STRANGER]) == 0


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("role", "allowed"), [(WATCHER, True), (MONITOR, True), (STRANGER, False)])
def test_who_sees_a_run_afterwards(seen: Seen, database: str, view: str, role: str, allowed: bool) -> None:
    with closing(psycopg2.connect(dbname=database, user=role)) as connection:
        rows = execute(connection, f"SELECT run_id FROM cerebro.{view}")
    assert {run_id for (run_id,) in rows} == ({seen.run_id} if allowed else set())


def test_a_stranger_cannot_look_behind_the_views(seen: Seen, database: str) -> None:
    with closing(psycopg2.connect(dbname=database, user=STRANGER)) as connection:
        connection.autocommit = True
        for table in ("_run", "_visit", "_state", "_metric", "_visible_run", "settings"):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                execute(connection, f"SELECT * FROM cerebro.{table}")


def test_a_condition_cannot_leak_rows_of_others(seen: Seen, database: str) -> None:
    """A function in a query's condition is not called for rows that the view hides."""
    with closing(psycopg2.connect(dbname=database, user=STRANGER)) as connection:
        connection.autocommit = True
        execute(
            connection,
            "CREATE FUNCTION pg_temp.peek(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001"
            " AS $$BEGIN RAISE EXCEPTION 'saw %', $1; END$$",
        )
        for view, column in (("runs", "source_table"), ("visits", "loss"), ("leaderboard", "compile_params")):
            assert (
                execute(connection, f"SELECT * FROM cerebro.{view} WHERE pg_temp.peek({column}::text)") == []
            )


def test_a_finished_run(seen: Seen, user: Trial) -> None:
    row = user.read_row("SELECT * FROM cerebro.runs WHERE run_id = %s", seen.run_id)
    expected = {
        "status": "finished", "configs": 4, "failed_configs": 0, "epochs": EPOCHS, "segments": SEGMENTS,
        "visits_done": 48, "visits_total": 48, "seed": 7, "detail": None,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert row["seconds"] == pytest.approx((row["ended_at"] - row["started_at"]).total_seconds())
    progress = user.sql(
        "SELECT DISTINCT status, epoch, visits_done, seconds_left, segment FROM cerebro.progress"
        " WHERE run_id = %s",
        seen.run_id,
    )
    assert [row[:3] for row in progress] == [("finished", EPOCHS, 12)]
    assert progress[0][3] in (None, 0)


def test_visits_say_what_they_took(seen: Seen, user: Trial) -> None:
    for row in visits(user, seen.run_id):
        parts = row["read_seconds"] + row["train_seconds"] + row["write_seconds"]
        assert 0 < parts <= (row["ended_at"] - row["started_at"]).total_seconds() + 0.1
        assert (row["rows"], row["loss"] > 0, row["state_bytes"] > 0) == (100, True, True)


def visits(trial: Trial, run_id: int) -> list[dict[str, Any]]:
    return as_dicts(trial.connection, f"SELECT * FROM cerebro.visits WHERE run_id = {run_id}")


def board(trial: Trial, run_id: int) -> Rows:
    return trial.sql(
        "SELECT rank, mst_key, metric, value FROM cerebro.leaderboard WHERE run_id = %s ORDER BY rank", run_id
    )


def test_accuracy_is_better_when_it_is_higher(seen: Seen, user: Trial) -> None:
    rows = board(user, seen.run_id)
    values = [value for *_, value in rows]
    assert {metric for _, _, metric, _ in rows} == {"accuracy"}
    assert values == sorted(values, reverse=True)
    assert rows[0][0] == 1


def test_the_engine_of_a_config_can_be_seen(seen: Seen, user: Trial) -> None:
    assert user.sql("SELECT DISTINCT backend FROM cerebro.leaderboard WHERE run_id = %s", seen.run_id) == [
        (reference.BACKEND,)
    ]


@pytest.mark.parametrize(
    ("metrics", "metric", "higher"),
    [("", "loss", False), (",metrics=['mae']", "mae", False), (",metrics=['AUC']", "AUC", True)],
)
def test_the_direction_is_the_metrics_own(user: Trial, metrics: str, metric: str, higher: bool) -> None:
    name = f"by_{metric.lower()}"
    rates = [f"loss='categorical_crossentropy',optimizer='SGD(lr={rate})'{metrics}" for rate in (1e-6, 0.05)]
    user.select(f"{name}_mst", [1], rates, ["batch_size=10,epochs=3"])
    run_id = user.fit("packed", name, f"{name}_mst", 2)
    rows = board(user, run_id)
    assert [found.lower() for _, _, found, _ in rows] == [metric.lower()] * 2
    better = user.value(f"SELECT mst_key FROM {name}_mst WHERE compile_params LIKE '%%0.05%%' AND %s", True)
    assert rows[0][1] == better
    assert (rows[0][3] > rows[1][3]) == higher


def test_validation_rows_decide_where_there_are_any(user: Trial) -> None:
    user.pack_validation("blobs", "packed_val", "packed")
    run_id = user.fit("packed", "validated", "mst", 1, validation_table="packed_val")
    datasets = user.sql("SELECT DISTINCT dataset FROM cerebro.leaderboard WHERE run_id = %s", run_id)
    assert datasets == [("validation",)]


UNTIL_IT_IS_OVER = """CREATE FUNCTION pg_temp.until_over(run_id bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (
        SELECT FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
        WHERE l.locktype = 'advisory' AND l.classid = run_id AND d.datname = current_database()
    ) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN run_id;
END $$"""


@pytest.mark.parametrize(
    "isolation", ["READ COMMITTED", pytest.param("REPEATABLE READ", marks=pytest.mark.slow)]
)
def test_a_query_that_a_run_outlives_does_not_take_it_for_dead(
    user: Trial, database: str, isolation: str
) -> None:
    """The query's snapshot is older than the end of the run, so the status is still "running"."""
    with closing(psycopg2.connect(dbname=database, user=USER)) as reader:
        reader.autocommit = True
        execute(reader, UNTIL_IT_IS_OVER)
        options = {"threads": 1, "background": True}
        user.call(
            "madlib_fit_multiple_model", "packed", f"out_{isolation[:4]}", "mst", EPOCHS, options=options
        )
        run_id = user.value("SELECT cerebro.last_run()")
        execute(reader, f"BEGIN ISOLATION LEVEL {isolation}")
        query = (
            "SELECT r.status, r.ended_at FROM (SELECT pg_temp.until_over(%s) AS run_id OFFSET 0) AS s"
            " CROSS JOIN LATERAL (SELECT * FROM cerebro.runs AS r WHERE r.run_id = s.run_id) AS r"
        )
        assert execute(reader, query, run_id) == [("running", None)]
        execute(reader, "COMMIT")
        assert execute(reader, f"SELECT status FROM cerebro.runs WHERE run_id = {run_id}") == [("finished",)]
        # Wait until the run's last transaction has ended as well.
        user.value("SELECT cerebro.wait(%s)", run_id)
