"""Fixtures of tests/db. Modules share one connection, so that TensorFlow is not imported for each module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from fixtures import Connection, execute
from steering import Run
from trial import Trial

# Each holds an engine, and up to a gigabyte.
MOST_SESSIONS = 8
SESSIONS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'cerebro%'
"""
# After a prediction or a run within one transaction, the process behind the connection has an engine, and can
# have no other. Files to which that makes a difference have the mark `fresh_caller`.
NO_ENGINE = """
DO LANGUAGE plpython3u $$
import sys
runtime = sys.modules.get("cerebro_plpy.engine.backends.runtime")
if runtime is not None and runtime.is_started():
    plpy.error("this process has an engine")
# On Greenplum it is in the processes that serve the session on the segments.
inline = sys.modules.get("cerebro_plpy.topology.inline")
if inline is not None and inline.find_started() is not None:
    plpy.error("this session has an engine")
$$
"""
# Numbers of runs go on: sessions that stay open know runs by them. A test may have put a table beside the
# extension's own. On Citus its shards, whose names end in numbers, go with the tables.
EMPTY = r"""
DO $$
DECLARE
    statement text;
BEGIN
    DROP EXTENSION IF EXISTS cerebro_madlib CASCADE;
    FOR statement IN
        SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace n
        WHERE nspname NOT IN ('cerebro', 'madlib', 'information_schema') AND nspname !~ '^pg_'
          AND NOT EXISTS (SELECT FROM pg_depend
                          WHERE classid = 'pg_namespace'::regclass AND objid = n.oid AND deptype = 'e')
        UNION ALL
        SELECT format('DROP TABLE %s', c.oid::regclass) FROM pg_class c
        WHERE relnamespace = 'cerebro'::regnamespace AND relkind = 'r' AND relname !~ '_\d{6,}$'
          AND NOT EXISTS (SELECT FROM pg_depend
                          WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e')
    LOOP
        EXECUTE statement;
    END LOOP;
    FOR statement IN
        SELECT format('TRUNCATE %s', string_agg(oid::regclass::text, ', ')) FROM pg_class
        WHERE relnamespace = 'cerebro'::regnamespace AND relkind = 'r' AND relname <> '_segment_key'
          AND relname !~ '_\d{6,}$'
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$
"""


class Shared:
    """The database that all test modules use in turn, and the connections that they share.

    Modules that need a process without an engine have a connection of their own. So a module that starts an
    engine there ends no session of the other modules.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._connections: dict[bool, Connection] = {}

    def empty(self) -> None:
        """Empty the extension's tables, and drop everything else in the database."""
        with closing(_open(self.name)) as connection:
            owner = "pg_database_owner" if connection.server_version >= 140000 else connection.info.user
            execute(connection, EMPTY)
            execute(connection, f"CREATE SCHEMA IF NOT EXISTS public AUTHORIZATION {owner}")
            execute(connection, "GRANT USAGE ON SCHEMA public TO PUBLIC")

    def connection(self, *, fresh: bool) -> Connection:
        """Return the shared connection after DISCARD ALL, or a new connection if the shared one is unfit.

        If `fresh` is true, no engine has started in the process behind the connection.
        """
        connection = self._connections.get(fresh)
        if connection is None or not self._is_fit(connection, fresh=fresh):
            if connection is not None:
                connection.close()
            self._connections[fresh] = _open(self.name)
        return self._connections[fresh]

    def _is_fit(self, connection: Connection, *, fresh: bool) -> bool:
        """Reset the session; return whether it works, has few sessions and, if `fresh`, no engine."""
        try:
            connection.autocommit = True
            connection.notices = []
            execute(connection, "DISCARD ALL")
            if fresh:
                execute(connection, NO_ENGINE)
            ((sessions,),) = execute(connection, SESSIONS)
        except psycopg2.Error:
            return False
        return sessions <= MOST_SESSIONS

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def _open(database: str) -> Connection:
    connection = psycopg2.connect(dbname=database)
    connection.autocommit = True
    connection.notices = []
    return connection


@pytest.fixture(scope="session")
def shared(shared_database: str) -> Iterator[Shared]:
    with closing(Shared(shared_database)) as shared:
        yield shared


@pytest.fixture(scope="module")
def database(shared: Shared) -> str:
    """The name of the shared database, emptied of everything except the extension."""
    shared.empty()
    return shared.name


@pytest.fixture(scope="module")
def trial(database: str, shared: Shared, request: pytest.FixtureRequest) -> Trial:
    """A `Trial` on a superuser's connection, whose segment sessions may be open from earlier modules."""
    fresh = request.node.get_closest_marker("fresh_caller") is not None
    # It would fail after some modules and not after others.
    assert fresh or '"backend": "jax"' not in request.path.read_text(), "a file that names JAX has the mark"
    return Trial(shared.connection(fresh=fresh))


@pytest.fixture
def run(trial: Trial, db: Connection) -> Iterator[Run]:
    """A `Run` that the test starts and steers; a call that goes on after the test is cancelled."""
    made = Run(trial, db)
    yield made
    if made.call is not None and not made.call.done():
        execute(db, "SELECT pg_cancel_backend(%s)", trial.connection.info.backend_pid)
