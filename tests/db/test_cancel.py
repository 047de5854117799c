"""A call that is cancelled or loses its client leaves no sessions, and its run has the right status."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg2
import pytest

import nets
from fixtures import Connection, execute
from trial import ADAM, Trial, blobs, rows_of

# A run that is not cancelled goes on for minutes. A busy machine may take some seconds to end one that is.
SECONDS = 10.0
FEATURES = 12
SESSIONS = (
    "SELECT pid, application_name FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE 'cerebro%'"
)

SAY = """
DO LANGUAGE plpython3u $$
import os, signal
from cerebro_plpy import doors, entry
os.kill(os.getpid(), signal.SIGINT)
doors.internal(lambda: entry.Session().{way}("said"))()
$$
"""

# The garbage collector calls Python code while rows are read, as with a library that watches it.
READ = """
DO LANGUAGE plpython3u $$
import gc
from cerebro_plpy import backend, entry
from cerebro_plpy.segment import cancel
db, found, looks = entry.SegmentSession(), 0, []
def tick():
    looks.append(db.query("SELECT 1"))
def collected(phase, info):
    sum(range(100))
before = cancel._WORK_SECONDS, gc.get_threshold()
cancel._WORK_SECONDS = 0.001
gc.set_threshold(1)
gc.callbacks.append(collected)
try:
    with cancel.interruptible(tick, backend.is_busy):
        for batch in db.scan("SELECT g, ARRAY[g, g] AS x FROM generate_series(1, 50000) AS g", batch=500):
            found += len(batch)
        while not looks:
            sum(range(1000))
finally:
    gc.callbacks.remove(collected)
    cancel._WORK_SECONDS = before[0]
    gc.set_threshold(*before[1])
if found != 50000:
    plpy.error(f"{found} rows")
$$
"""


def connect(database: str) -> Connection:
    connection = psycopg2.connect(dbname=database)
    connection.autocommit = True
    return connection


@pytest.fixture(scope="module")
def watcher(database: str) -> Iterator[Connection]:
    """A second connection, which looks at the sessions and runs of the caller."""
    with closing(connect(database)) as connection:
        yield connection


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    """Make two selections: `slow` trains for minutes unless it is cancelled, `quick` for a moment."""
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(400, features=FEATURES)))
    trial.pack("blobs", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.select("slow", [1], [ADAM, ADAM.replace("0.01", "0.001")], ["batch_size=1,epochs=10"])
    trial.select("quick", [1], [ADAM], ["batch_size=50,epochs=1"])


class Caller:
    """A session that calls a fit in a thread of the test, so that the test can cancel the call."""

    def __init__(self, connection: Connection, watcher: Connection) -> None:
        self.trial = Trial(connection)
        self.pid = connection.info.backend_pid
        self.watcher = watcher
        self.pool = ThreadPoolExecutor(1)
        self.call: Future[int] | None = None

    def start(self, out: str, selection: str = "slow", **more: Any) -> None:
        """Call a fit in a thread of the test, and return at once."""
        self.call = self.pool.submit(self.trial.fit, "packed", out, selection, 200, **more)

    def wait_for(self, query: str) -> None:
        """Wait until the query returns a row, or until the call has ended."""
        wait_until(lambda: bool(execute(self.watcher, query)) or self.done())

    def done(self) -> bool:
        return self.call is not None and self.call.done()

    def error(self) -> psycopg2.Error:
        assert self.call is not None
        found = self.call.exception(timeout=30)
        assert isinstance(found, psycopg2.Error)
        return found


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> float:
    """Wait until the condition is true, and return the time this took; fail after `seconds`."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, "it never came to be"
        time.sleep(0.01)
    return time.monotonic() - started


@pytest.fixture
def caller(database: str, watcher: Connection) -> Iterator[Caller]:
    with closing(connect(database)) as connection:
        yield Caller(connection, watcher)
        # Closing would wait for a call that goes on.
        execute(watcher, "SELECT pg_terminate_backend(%s)", connection.info.backend_pid)


VISITED = "SELECT 1 FROM cerebro.visits WHERE run_id = (SELECT max(run_id) FROM cerebro.runs) OFFSET 5"


def others(watcher: Connection, mine: set[int]) -> list[tuple[int, str]]:
    """Return the segment and control sessions, except for sessions whose process is in `mine`."""
    return [row for row in execute(watcher, SESSIONS) if row[0] not in mine]


@pytest.fixture
def mine(watcher: Connection, trial: Trial) -> set[int]:
    """The processes of the segment and control sessions that are open before a test's own call."""
    return {pid for pid, _ in execute(watcher, SESSIONS)}


def check_run(watcher: Connection, status: str) -> None:
    """Check that the newest run has this status and has ended, and that each config has its last state."""
    ((run_id, found, done, ended),) = execute(
        watcher, "SELECT run_id, status, visits_done, ended_at FROM cerebro.runs ORDER BY run_id DESC LIMIT 1"
    )
    assert (found, ended is not None) == (status, True)
    visits = execute(
        watcher,
        "SELECT mst_key, count(*), max(step), (SELECT max(s.step) FROM cerebro._state s"
        " WHERE s.run_id = v.run_id AND s.mst_key = v.mst_key)"
        " FROM cerebro.visits v WHERE run_id = %s GROUP BY run_id, mst_key",
        run_id,
    )
    assert done == sum(count for _, count, *_ in visits) > 0
    assert all(count == last == state for _, count, last, state in visits)
    shown = execute(
        watcher, "SELECT DISTINCT status, segment FROM cerebro.progress WHERE run_id = %s", run_id
    )
    assert shown == [(status, None)]


def check_next_run(caller: Caller, out: str) -> None:
    run_id = caller.trial.fit("packed", out, "quick", 1)
    assert caller.trial.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run_id) == "finished"


def test_cancel(caller: Caller, watcher: Connection, mine: set[int]) -> None:
    caller.start("cancelled")
    caller.wait_for(VISITED)
    execute(watcher, "SELECT pg_cancel_backend(%s)", caller.pid)
    assert wait_until(caller.done) < SECONDS
    assert wait_until(lambda: others(watcher, mine) == []) < SECONDS
    assert caller.error().pgcode == "57014"
    assert "user request" in str(caller.error())
    check_run(watcher, "interrupted")
    assert execute(watcher, "SELECT to_regclass('cancelled'), to_regclass('cancelled_info')") == [
        (None, None)
    ]
    check_next_run(caller, "after_cancel")


@pytest.mark.slow
def test_statement_timeout(caller: Caller, watcher: Connection, mine: set[int]) -> None:
    caller.trial.fit("packed", "warm_up", "quick", 1)
    caller.trial.sql("SET statement_timeout = '8s'")
    started = time.monotonic()
    caller.start("timed_out")
    wait_until(caller.done)
    assert time.monotonic() - started < 8 + SECONDS
    assert wait_until(lambda: others(watcher, mine) == []) < SECONDS
    assert caller.error().pgcode == "57014"
    assert "statement timeout" in str(caller.error())
    check_run(watcher, "interrupted")


@pytest.mark.parametrize("way", ["notice", "warning"])
def test_a_cancel_while_something_is_said(trial: Trial, greenplum: bool, way: str) -> None:
    """A cancel that arrives while a call sends messages raises QueryCanceled, as at any other time."""
    trial.sql("SELECT cerebro._boot()")
    message = f"^{'' if greenplum else 'cerebro: '}canceling statement due to user request"
    with pytest.raises(psycopg2.errors.QueryCanceled, match=message):
        trial.sql(SAY.format(way=way))


@pytest.mark.postgresql
def test_a_look_for_cancels_takes_no_rows_from_a_statement(trial: Trial) -> None:
    trial.sql("SELECT cerebro._boot()")
    trial.sql(READ)


def test_terminated_caller(caller: Caller, watcher: Connection, trial: Trial, mine: set[int]) -> None:
    caller.start("terminated")
    caller.wait_for(VISITED)
    execute(watcher, "SELECT pg_terminate_backend(%s)", caller.pid)
    assert wait_until(caller.done) < SECONDS
    assert wait_until(lambda: others(watcher, mine) == []) < SECONDS
    check_run(watcher, "interrupted")
    run_id = trial.fit("packed", "after_terminate", "quick", 1)
    assert trial.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run_id) == "finished"


def test_cancel_while_sessions_start(caller: Caller, watcher: Connection, mine: set[int]) -> None:
    """A cancel while new sessions import Keras, which takes seconds, leaves no session either."""
    caller.start("early")
    wait_until(lambda: len(others(watcher, mine)) >= 2)
    time.sleep(0.3)
    execute(watcher, "SELECT pg_cancel_backend(%s)", caller.pid)
    assert wait_until(caller.done) < SECONDS
    assert caller.error().pgcode == "57014"
    assert wait_until(lambda: others(watcher, mine) == []) < SECONDS


def test_cancel_in_the_callers_own_session(caller: Caller, watcher: Connection, mine: set[int]) -> None:
    """With topology `inline`, all rows of the run are in the caller's transaction and are rolled back."""
    before = execute(watcher, "SELECT count(*) FROM cerebro.runs")
    caller.trial.sql("BEGIN; LOCK TABLE packed IN SHARE MODE")
    caller.start("inline")
    caller.wait_for(f"SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = {caller.pid}")
    time.sleep(0.5)
    execute(watcher, "SELECT pg_cancel_backend(%s)", caller.pid)
    assert wait_until(caller.done) < SECONDS
    assert caller.error().pgcode == "57014"
    caller.trial.sql("ROLLBACK")
    assert execute(watcher, "SELECT count(*) FROM cerebro.runs") == before
    check_next_run(caller, "after_inline")


@pytest.mark.slow
def test_a_dropped_client_ends_the_run(caller: Caller, watcher: Connection, mine: set[int]) -> None:
    """If the client's connection breaks, the caller's backend notices it, and the run is interrupted."""
    caller.trial.sql("SET client_connection_check_interval = '200ms'")
    caller.start("dropped")
    caller.wait_for(VISITED)
    with closing(socket.fromfd(caller.trial.connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)) as line:
        line.shutdown(socket.SHUT_RDWR)
    assert wait_until(lambda: others(watcher, mine) == []) < 2 * SECONDS
    check_run(watcher, "interrupted")
