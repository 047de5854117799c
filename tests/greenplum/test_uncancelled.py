"""A cancel that arrives while segments begin or end a subtransaction is heard, and leaves Python intact.

The segments must be on the coordinator's host: a process of a segment is stopped, so that the session waits
for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from fixtures import Connection, execute

pytestmark = pytest.mark.greenplum

OWN = (
    "SELECT (s.a).pid FROM (SELECT pg_stat_get_activity(NULL) AS a FROM gp_dist_random('gp_id')) AS s"
    " WHERE (s.a).sess_id = current_setting('gp_session_id')::integer ORDER BY 1 LIMIT 1"
)
# A function that stops a process for two seconds; the statement_timeout of one second passes meanwhile.
STOP = """
CREATE FUNCTION stop(pid integer, fails boolean) RETURNS integer LANGUAGE plpython3u AS $$
import os, signal, subprocess
subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {pid}"], cwd="/", start_new_session=True)
os.kill(pid, signal.SIGSTOP)
return 1 // (not fails)
$$
"""
CALL = """
DO LANGUAGE plpython3u $do$
from cerebro_plpy import doors, entry

def work():
    for statement in {statements}:
        try:
            entry.Session().query(statement)
        except doors.CerebroError as error:
            if "ZeroDivisionError" not in error.message:
                raise

if {before}:
    GD["stop"]({pid})
doors.internal(work)()
$do$
"""
# Keeps a Python function in the session, which can be called without a statement.
KEEP = """
DO LANGUAGE plpython3u $do$
import os, signal, subprocess

def stop(pid):
    subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {pid}"], cwd="/", start_new_session=True)
    os.kill(pid, signal.SIGSTOP)

GD["stop"] = stop
$do$
"""
NEXT = "SELECT 1"
MOMENTS = {
    "begins": (True, [NEXT]),
    "is released": (False, ["SELECT stop({pid}, FALSE)", NEXT]),
    "is undone": (False, ["SELECT stop({pid}, TRUE)", NEXT]),
}


@pytest.fixture(scope="module")
def session(database: str) -> Iterator[Connection]:
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        execute(connection, STOP)
        execute(connection, "SELECT cerebro._boot()")
        execute(connection, KEEP)
        yield connection


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_timeout_while_a_subtransaction(session: Connection, moment: str) -> None:
    before, statements = MOMENTS[moment]
    started = execute(session, "SELECT pg_postmaster_start_time()")
    pid = execute(session, OWN)[0][0]
    told = [statement.format(pid=pid) for statement in statements]
    execute(session, "SET statement_timeout = '1s'")
    with pytest.raises(psycopg2.errors.QueryCanceled, match="^cerebro: canceling statement due to statement"):
        execute(session, CALL.format(before=before, statements=told, pid=pid))
    execute(session, "RESET statement_timeout")
    # Python still works, and the session's process on the segment is still the same.
    execute(session, CALL.format(before=False, statements=[NEXT, NEXT], pid=pid))
    assert execute(session, OWN) == [(pid,)]
    assert execute(session, "SELECT pg_postmaster_start_time()") == started


def test_a_statement_that_waits_for_a_lock_hears_a_timeout(session: Connection, database: str) -> None:
    execute(session, "CREATE TABLE kept (i integer) DISTRIBUTED BY (i)")
    pid = execute(session, OWN)[0][0]
    with closing(psycopg2.connect(dbname=database)) as other:
        # This session releases the lock in the end, even if the other one misses its timeout.
        execute(other, "SET idle_in_transaction_session_timeout = '20s'")
        execute(other, "LOCK TABLE kept IN ACCESS EXCLUSIVE MODE")
        execute(session, "SET statement_timeout = '1s'")
        begun = time.monotonic()
        with pytest.raises(psycopg2.errors.QueryCanceled):
            execute(session, CALL.format(before=False, statements=["SELECT count(*) FROM kept"], pid=pid))
        assert time.monotonic() - begun < 10
    execute(session, "RESET statement_timeout")
    execute(session, CALL.format(before=False, statements=[NEXT], pid=pid))
