"""Resuming and forgetting runs in any state; errors that end a config, and errors that end a run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import psycopg2
import psycopg2.errors
import pytest

import workload
from cerebro_plpy.commands import Engine
from cerebro_plpy.store import session
from cerebro_plpy.topology import local
from fixtures import Connect, Connection, MakeRole, Sql, execute
from harness import Call
from kinds import turn_bit
from scratch import wait_until
from trial import Trial
from workload import SEGMENTS, SMALL, VISITS, Left

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def warm(database: str) -> Iterator[Connection]:
    """A superuser's connection that lives as long as the module and keeps its segment sessions warm."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        connection.notices = []
        workload.make_tables(connection)
        yield connection


@pytest.fixture(scope="module")
def undisturbed(warm: Connection) -> Left:
    workload.fit(warm, "undisturbed", "jax")
    return workload.left(warm, "undisturbed")


@pytest.fixture
def out(db: Connection, undisturbed: Left) -> Iterator[str]:
    """The name of a model table, dropped after the test."""
    yield "made"
    workload.drop(db, "made")


def run_of(db: Connection, out: str = "made") -> int | None:
    return execute(db, "SELECT max(run_id) FROM cerebro._run WHERE model_table ~ %s", f"\\m{out}\\M")[0][0]


def visits(db: Connection, run_id: int | None) -> int:
    return execute(db, "SELECT count(*) FROM cerebro._visit WHERE run_id = %s", run_id)[0][0]


def status(db: Connection, run_id: int) -> str:
    return execute(db, "SELECT status FROM cerebro.runs WHERE run_id = %s", run_id)[0][0]


def started(db: Connection, connect: Connect, at_least: int = 6, user: str | None = None) -> tuple[Call, int]:
    """Start a run in a thread; return its call and number once it has made `at_least` visits or is over."""
    before = run_of(db)
    call = Call(connect(user=user), "made", "jax", rolls_back=False)
    call.start()
    wait_until(lambda: not call.is_alive() or run_of(db) != before, "a run to begin", pause=0.005)
    run_id = run_of(db)
    assert run_id is not None and run_id != before, call.error
    wait_until(lambda: not call.is_alive() or visits(db, run_id) >= at_least, "visits", pause=0.005)
    return call, run_id


def interrupted(db: Connection, connect: Connect, user: str | None = None) -> int:
    call, run_id = started(db, connect, user=user)
    execute(db, "SELECT pg_cancel_backend(%s)", call.pid)
    call.join()
    assert call.error is not None, "the run was over before it was cancelled"
    wait_until(lambda: status(db, run_id) == "interrupted", "the run to be interrupted")
    return run_id


def resume(connection: Connection, run_id: int) -> None:
    execute(connection, "SELECT cerebro.resume(%s)", run_id)


def refused(connection: Connection, statement: str, *values: object) -> psycopg2.Error:
    with pytest.raises(psycopg2.Error) as caught:
        execute(connection, statement, *values)
    return caught.value


@pytest.mark.doors("psycopg2", "resume")
def test_resumed_once_and_no_second_time(
    db: Connection, connect: Connect, out: str, undisturbed: Left
) -> None:
    run_id = interrupted(db, connect)
    resume(db, run_id)
    assert workload.left(db, out) == undisturbed
    workload.check_visits(db, run_id)
    error = refused(db, "SELECT cerebro.resume(%s)", run_id)
    assert (error.pgcode, error.diag.message_primary) == (
        "55000", f"cerebro: run {run_id} is finished: public.made has its models",
    )  # fmt: skip
    assert status(db, run_id) == "finished"


def test_of_two_sessions_that_resume_one_run_one_does(
    db: Connection, connect: Connect, out: str, undisturbed: Left
) -> None:
    run_id = interrupted(db, connect)
    errors: list[psycopg2.Error] = []

    def one(connection: Connection) -> None:
        try:
            resume(connection, run_id)
        except psycopg2.Error as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(connect(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [error.pgcode for error in errors] == ["55000"], errors
    assert workload.left(db, out) == undisturbed
    workload.check_visits(db, run_id)
    assert status(db, run_id) == "finished"


def test_a_running_run_is_neither_resumed_nor_forgotten(
    db: Connection, connect: Connect, out: str, undisturbed: Left
) -> None:
    call, run_id = started(db, connect)
    with closing(connect(autocommit=False)) as holder:
        # The run cannot write down a visit, so it is not over before we ask.
        execute(holder, "LOCK TABLE cerebro._visit IN SHARE MODE")
        for what in ("resume", "forget"):
            error = refused(db, f"SELECT cerebro.{what}(%s)", run_id)
            found = (error.pgcode, error.diag.message_primary)
            assert found == ("55000", f"cerebro: run {run_id} is running")
    call.join()
    assert call.error is None
    assert workload.left(db, out) == undisturbed


def test_a_run_of_somebody_else_is_not_there(
    db: Connection, connect: Connect, role: MakeRole, out: str
) -> None:
    run_id = interrupted(db, connect)
    stranger = connect(user=role())
    for what in ("resume", "forget"):
        theirs = refused(stranger, f"SELECT cerebro.{what}(%s)", run_id)
        none = refused(stranger, f"SELECT cerebro.{what}(%s)", 10**9)
        assert theirs.pgcode == none.pgcode == "42501"
        assert str(theirs).replace(f"run {run_id}", "") == str(none).replace(f"run {10**9}", "")
    execute(db, "SELECT cerebro.forget(%s)", run_id)


def test_a_strangers_lock_keeps_nobody_from_a_run(
    db: Connection, connect: Connect, role: MakeRole, out: str, undisturbed: Left
) -> None:
    """The stranger takes the lock that the driving session had, and a thousand more; the run is resumed."""
    stranger = connect(user=role(usage=False))
    call, run_id = started(db, connect)
    held = (
        "SELECT classid::bigint, objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND classid = %s"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    ((of, own),) = execute(stranger, held, run_id)
    execute(db, "SELECT pg_cancel_backend(%s)", call.pid)
    execute(
        stranger, "SELECT pg_advisory_lock(%s, n) FROM generate_series(%s, %s) AS n", of, own - 500, own + 500
    )
    call.join()
    assert status(db, run_id) == "interrupted"
    resume(db, run_id)
    assert workload.left(db, out) == undisturbed
    execute(db, "SELECT cerebro.forget(%s)", run_id)
    assert not execute(db, "SELECT FROM cerebro.runs WHERE run_id = %s", run_id)


def test_tables_of_another_run_are_in_the_way(db: Connection, connect: Connect, out: str) -> None:
    """The run stays interrupted while the tables exist, and can be resumed once they are dropped."""
    run_id = interrupted(db, connect)
    execute(db, "CREATE TABLE made AS SELECT 1 AS one")
    other = connect()
    assert refused(other, "SELECT cerebro.resume(%s)", run_id).pgcode == "42P07"
    assert status(db, run_id) == "interrupted"
    execute(db, "DROP TABLE made")
    resume(other, run_id)
    assert status(db, run_id) == "finished"


def test_a_cancelled_resume_is_resumed(db: Connection, connect: Connect, out: str, undisturbed: Left) -> None:
    """A resume is cancelled at three moments, also while its sessions start, before any visit."""
    run_id = interrupted(db, connect)
    for seconds in (0.05, 0.4, 1.0):
        hasty = connect()
        execute(hasty, "SELECT set_config('statement_timeout', %s, false)", f"{1000 * seconds:.0f}")
        try:
            resume(hasty, run_id)
        except psycopg2.errors.QueryCanceled:
            assert status(db, run_id) in ("interrupted", "failed")
    if status(db, run_id) != "finished":
        resume(db, run_id)
    assert workload.left(db, out) == undisturbed
    workload.check_visits(db, run_id)


def test_a_damaged_state_is_named_and_made_again(
    db: Connection, connect: Connect, sql: Sql, out: str, undisturbed: Left
) -> None:
    run_id = interrupted(db, connect)
    step = sql("SELECT max(step) FROM cerebro._state WHERE run_id = %s AND mst_key = 2", run_id)[0][0]
    turn_bit(sql, run_id, 2, step, 5000)
    db.notices = []
    resume(db, run_id)
    said = "".join(db.notices)
    assert f"the state of config 2 after step {step} of run {run_id} is damaged" in said
    assert f"Config 2 goes on from step {step - 1}." in said
    assert workload.left(db, out) == undisturbed
    workload.check_visits(db, run_id)


def test_where_the_state_before_is_damaged_too_the_config_fails(
    db: Connection, connect: Connect, sql: Sql, out: str, undisturbed: Left
) -> None:
    run_id = interrupted(db, connect)
    steps = sql("SELECT step FROM cerebro._state WHERE run_id = %s AND mst_key = 2 ORDER BY 1", run_id)
    for (step,) in steps:
        turn_bit(sql, run_id, 2, step, 5000)
    resume(db, run_id)
    found = workload.left(db, out)
    assert found.weights == {key: value for key, value in undisturbed.weights.items() if key != 2}
    reason = sql("SELECT reason FROM made_info WHERE mst_key = 2")[0][0]
    assert f"the state of config 2 after step {steps[-1][0]} of run {run_id} is damaged" in reason
    assert status(db, run_id) == "finished"


@pytest.fixture
def hurt(sql: Sql) -> Iterator[None]:
    """After the test, drop the function hurt(), which a trigger runs in every visit of config 2."""
    yield
    sql("DROP FUNCTION public.hurt CASCADE")
    sql("DELETE FROM cerebro.settings WHERE name = 'retries'")


def hurting(sql: Sql, what: str, retries: int) -> None:
    sql(
        f"CREATE FUNCTION public.hurt() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {what}; RETURN NEW; END$$"
    )
    sql(
        "CREATE TRIGGER hurt BEFORE INSERT ON cerebro._visit FOR EACH ROW WHEN (NEW.mst_key = 2)"
        " EXECUTE FUNCTION public.hurt()"
    )
    sql("INSERT INTO cerebro.settings VALUES ('retries', %s)", str(retries))


@pytest.mark.parametrize(
    ("what", "retries", "reason"),
    [
        ("PERFORM pg_terminate_backend(pg_backend_pid())", 0, "its segment session was lost 1 times: "),
        ("PERFORM pg_terminate_backend(pg_backend_pid())", 2, "its segment session was lost 3 times: "),
        ("RAISE 'no more' USING ERRCODE = '53200'", 1, "it failed 2 times: no more"),
    ],
)
def test_a_visit_that_fails_every_time_fails_its_config_and_not_the_run(
    db: Connection, sql: Sql, hurt: None, out: str, undisturbed: Left, what: str, retries: int, reason: str
) -> None:
    hurting(sql, what, retries)
    workload.fit(db, out, "jax")
    found = workload.left(db, out)
    assert found.weights == {key: value for key, value in undisturbed.weights.items() if key != 2}
    assert sql("SELECT status FROM made_info WHERE mst_key = 2") == [("failed",)]
    assert sql("SELECT reason FROM made_info WHERE mst_key = 2")[0][0].startswith(reason)


def test_a_full_disk_ends_the_run_and_no_config(
    db: Connection, connect: Connect, sql: Sql, hurt: None, out: str, undisturbed: Left
) -> None:
    hurting(sql, "RAISE 'no space left on device' USING ERRCODE = '53100'", 3)
    with pytest.raises(psycopg2.errors.DiskFull):
        workload.fit(db, out, "jax")
    run_id = run_of(db)
    assert run_id is not None and status(db, run_id) == "failed"
    sql("DROP TRIGGER hurt ON cerebro._visit")
    resume(db, run_id)
    assert workload.left(db, out) == undisturbed


@contextmanager
def closed(database: str) -> Iterator[None]:
    """Refuse all new connections to this database until the end of the block."""
    with closing(psycopg2.connect(dbname="postgres")) as other:
        other.autocommit = True
        execute(other, f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        try:
            yield
        finally:
            execute(other, f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_run_waits_a_while_for_a_new_session(
    db: Connection, connect: Connect, sql: Sql, database: str, out: str, undisturbed: Left, seconds: int
) -> None:
    sql("INSERT INTO cerebro.settings VALUES ('retry_seconds', %s)", str(seconds))
    try:
        call, run_id = started(db, connect)
        with closed(database):
            # One that is visiting, not an idle session that another test has left.
            one = f"SELECT pg_terminate_backend(pid) FROM ({VISITING} LIMIT 1) AS one"
            wait_until(lambda: bool(sql(one)), "a visit", pause=0.005)
            call.join(3 if seconds else None)
            assert call.is_alive() == (seconds > 0)
        call.join()
    finally:
        sql("DELETE FROM cerebro.settings WHERE name = 'retry_seconds'")
    if call.error is not None:
        assert seconds == 0 and call.error.pgcode == "08006"
        assert "not currently accepting connections" in str(call.error)
        resume(db, run_id)
    assert workload.left(db, out) == undisturbed
    workload.check_visits(db, run_id)


def test_the_setting_sessions_bounds_the_sessions(
    db: Connection, connect: Connect, sql: Sql, warm: Connection, out: str, undisturbed: Left
) -> None:
    """With the setting at 1, one segment session does the work of both segments, with the same bits."""
    others = {pid for (pid,) in sql(SEGMENT_SESSIONS)}
    sql("INSERT INTO cerebro.settings VALUES ('sessions', '1')")
    try:
        call = Call(connect(), out, "jax", rolls_back=False)
        call.start()
        most = 0
        while call.is_alive():
            most = max(most, len({pid for (pid,) in sql(SEGMENT_SESSIONS)} - others))
            time.sleep(0.02)
    finally:
        sql("DELETE FROM cerebro.settings WHERE name = 'sessions'")
    assert call.error is None
    # With the control session, which trains nothing.
    assert most == 2
    assert workload.left(db, out) == undisturbed


def test_runs_that_start_at_once_keep_to_the_bound(database: str) -> None:
    """There is room for two segment sessions at first, and for only one when the run looks again."""
    told = iter([2, 1])
    at = session.LoginTarget(
        None, os.environ["PGHOST"], os.environ["PGPORT"], database, "postgres", 150000, {}
    )
    bounds = local.Bounds(
        idle_minutes=1, patience=0.0, look_seconds=0, background=False,
        most_sessions=lambda: next(told), room=lambda: session.Room(10, 100, "max_connections"),
    )  # fmt: skip
    topology = local.LocalTopology("postgres", at, bounds, lambda: None, print)
    try:
        topology.open([Engine("jax", 1, False)], 2)
        # One for the segments, and the control session.
        assert len(local.own_pids()) == 2
    finally:
        topology.stop()
        topology.close()


VISITING = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE 'cerebro visit%'"
)
SEGMENT_SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'cerebro%'"
)


def test_two_users_train_on_one_table_at_once(
    db: Connection, connect: Connect, sql: Sql, role: MakeRole, undisturbed: Left
) -> None:
    users = [role(), role()]
    calls = []
    for user in users:
        sql(f"GRANT SELECT ON packed, packed_summary, mst, mst_summary, arch TO {user}")
        connection = connect(user=user)
        calls.append(Call(connection, f"{user}_out", "jax", rolls_back=False))
    for call in calls:
        call.start()
    for call in calls:
        call.join()
        assert call.error is None
    for user in users:
        own = connect(user=user)
        found = workload.left(own, f"{user}_out")
        assert found == undisturbed
        runs = execute(own, "SELECT run_id, owner FROM cerebro.runs")
        assert [owner for _, owner in runs] == [user]
        workload.check_visits(db, runs[0][0])
        execute(own, "SELECT cerebro.forget(%s)", runs[0][0])


def test_old_runs_go_and_those_that_run_stay(
    db: Connection, connect: Connect, sql: Sql, warm: Connection, out: str
) -> None:
    old, needed, recent = (interrupted(db, connect) for _ in range(3))
    call, running = started(db, connect)
    aged = "UPDATE cerebro.{0} SET {1} = {1} - interval '9 days' WHERE run_id = ANY (%s)"
    sql(aged.format("_run_event", "at"), [old, needed, recent, running])
    sql(aged.format("_visit", "ended_at"), [old, needed, running])
    sql("UPDATE cerebro._config SET warm_run_id = %s WHERE run_id = %s", needed, recent)
    sql("INSERT INTO cerebro.settings VALUES ('retention_days', '8')")
    try:
        workload.fit(warm, "newer", "jax")
    finally:
        sql("DELETE FROM cerebro.settings WHERE name = 'retention_days'")
        workload.drop(warm, "newer")
    left = {run_id for (run_id,) in sql("SELECT run_id FROM cerebro.runs")}
    assert old not in left and {needed, recent, running} <= left
    assert sql("SELECT count(*) FROM cerebro._state WHERE run_id = %s", old) == [(0,)]
    why = str(refused(db, "SELECT cerebro.forget(%s)", needed))
    assert f"run {recent} is not finished, and begins with the states of run {needed}" in why
    call.join()
    assert call.error is None


def test_a_statement_that_waits_for_the_packed_table_ends_the_run_in_the_end(
    db: Connection, connect: Connect, sql: Sql, out: str
) -> None:
    """Segment sessions wait behind the DROP TABLE and give up after half a minute; then it succeeds."""
    Trial(db).pack("rows", "doomed", options={"segments": SEGMENTS})
    before = run_of(db)
    call = Call(connect(), out, "jax", rolls_back=False, job=replace(SMALL, packed="doomed"))
    call.start()
    wait_until(lambda: run_of(db) != before, "the run to begin", pause=0.005)
    sql("DROP TABLE doomed, doomed_summary")
    call.join()
    assert call.error is not None and call.error.pgcode == "55P03"
    assert "table public.doomed is locked" in str(call.error)
    run_id = run_of(db)
    assert run_id is not None and status(db, run_id) == "failed"
    assert refused(db, "SELECT cerebro.resume(%s)", run_id).pgcode == "42P01"


def test_a_table_that_is_locked_before_the_run_begins_is_named(
    db: Connection, connect: Connect, sql: Sql, out: str
) -> None:
    """The caller has locked the table, but the control session waits behind another's DROP TABLE."""
    Trial(db).pack("rows", "early", options={"segments": SEGMENTS})
    before, caller, dropping = run_of(db), connect(autocommit=False), connect()
    execute(caller, "SELECT FROM early, early_summary LIMIT 1")
    drop = threading.Thread(target=execute, args=(dropping, "DROP TABLE early, early_summary"))
    drop.start()
    waits = (
        "SELECT count(*) FROM pg_locks WHERE relation = 'early'::regclass AND NOT granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    wait_until(lambda: sql(waits) == [(1,)], "the statement to wait")
    with pytest.raises(psycopg2.errors.LockNotAvailable) as caught:
        workload.fit(caller, out, "jax", replace(SMALL, packed="early"))
    assert "table public.early is locked" in str(caught.value)
    assert "this run has not begun" in str(caught.value)
    caller.rollback()
    drop.join()
    assert run_of(db) == before


@pytest.mark.parametrize("packed_again", [False, True])
def test_rows_that_changed_since_the_run_began_end_it(
    db: Connection, connect: Connect, sql: Sql, out: str, packed_again: bool
) -> None:
    """During a run, the caller's lock protects the table as a whole, but not its single rows."""
    trial = Trial(db)
    trial.pack("rows", "brief", options={"segments": SEGMENTS})
    before = run_of(db)
    call = Call(connect(), out, "jax", rolls_back=False, job=replace(SMALL, packed="brief"))
    call.start()
    wait_until(lambda: run_of(db) != before and visits(db, run_of(db)) > 4, "visits", pause=0.005)
    if packed_again:
        sql("SELECT pg_cancel_backend(%s)", call.pid)
        call.join()
        sql("DROP TABLE brief, brief_summary")
        trial.pack("rows", "brief", options={"segments": SEGMENTS, "seed": 99})
    else:
        sql("DELETE FROM brief WHERE __dist_key__ = 0")
        call.join()
        assert call.error is not None and call.error.pgcode == "55000", call.error
    run_id = run_of(db)
    assert run_id is not None and status(db, run_id) in ("failed", "interrupted")
    error = refused(db, "SELECT cerebro.resume(%s)", run_id)
    assert error.pgcode == "55000"
    assert f"public.brief has changed since run {run_id} began" in str(error)
    sql("DROP TABLE brief, brief_summary")
    assert visits(db, run_id) < VISITS
