"""Fixtures for all tests: each test module gets its own database, cloned from one with the extension."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from psycopg2 import sql as syntax
from psycopg2.sql import Composable

from fixtures import CITUS_WORKERS, IS_GREENPLUM, Connect, Connection, MakeRole, Rows, Sql, execute

ROOT = Path(__file__).resolve().parent.parent
_numbers = itertools.count(1)
HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
if not HAS_TENSORFLOW:
    # Keras in the tests' own process.
    os.environ.setdefault("KERAS_BACKEND", "jax")
DROP_SECONDS = 20


def _unique(purpose: str) -> str:
    return f"cerebro_{purpose}_{os.getpid()}_{next(_numbers)}"


def _open(dbname: str, user: str | None = None, port: str | None = None) -> Connection:
    connection = psycopg2.connect(dbname=dbname, user=user, port=port)
    connection.autocommit = True
    return connection


def _run(dbname: str, statement: str, *names: str) -> None:
    """Run one statement, after replacing each `{}` in it with one of the names, quoted as an identifier."""
    with closing(_open(dbname)) as connection:
        execute(connection, syntax.SQL(statement).format(*map(syntax.Identifier, names)))


def _create_database(name: str, template: str = "template0") -> None:
    """Create a database; on Citus, create it on every node and register the workers at the coordinator."""
    if not CITUS_WORKERS:
        _run("postgres", "CREATE DATABASE {} TEMPLATE {}", name, template)
        return
    for port in (None, *CITUS_WORKERS):
        with closing(_open("postgres", port=port)) as connection:
            execute(connection, syntax.SQL("CREATE DATABASE {}").format(syntax.Identifier(name)))
        with closing(_open(name, port=port)) as connection:
            execute(connection, "CREATE EXTENSION citus")
            # It has views in a schema that tests drop.
            for view in ("citus_tables", "citus_schemas"):
                execute(connection, f"ALTER VIEW public.{view} SET SCHEMA citus")
    host, own = os.environ["PGHOST"], os.environ["PGPORT"]
    with closing(_open(name)) as connection:
        execute(connection, "SELECT citus_set_coordinator_host(%s, %s)", host, int(own))
        for port in CITUS_WORKERS:
            execute(connection, "SELECT citus_add_node(%s, %s)", host, int(port))
        if template != "template0":
            execute(connection, "CREATE EXTENSION cerebro CASCADE")
            execute(connection, "SELECT cerebro.distribute()")


def _drop_database(name: str) -> None:
    """Drop a database; on Citus, drop it on every node."""
    for port in (None, *CITUS_WORKERS):
        _drop_at(port, name)


def _drop_at(port: str | None, name: str) -> None:
    """End all sessions in a database of the server at a port, then drop the database.

    PostgreSQL 12 has no DROP DATABASE ... WITH (FORCE), which does both in one statement.
    """
    with closing(_open("postgres", port=port)) as connection:
        deadline = time.monotonic() + DROP_SECONDS
        while True:
            execute(
                connection,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", name,
            )  # fmt: skip
            try:
                execute(connection, syntax.SQL("DROP DATABASE {}").format(syntax.Identifier(name)))
                return
            except psycopg2.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise


@functools.cache
def _server() -> tuple[bool, int] | None:
    """Return whether the server at PGHOST is Greenplum, and its version; None if no server answers."""
    if "PGHOST" not in os.environ:
        return None
    try:
        with closing(_open("postgres")) as connection:
            return execute(connection, IS_GREENPLUM)[0][0], connection.server_version
    except psycopg2.OperationalError:
        return None


# Files whose tests take half a minute or more together, as `pytest --durations=0` counts them. They begin
# first, or one of them would be at work alone at the end.
LONGEST = (
    "faults/test_faults db/test_invariants client/test_train db/test_train db/test_groups_warm"
    " contract/test_docs client/test_models db/test_automl db/test_functions db/test_registry_rights"
    " db/test_ensemble_folds db/test_strong_answers client/test_strong_saved db/test_cancel db/test_forecast"
    " client/shell/test_cli db/test_hostile_names db/test_rung_by"
    " db/test_groups db/test_columns db/test_views db/test_session_settings db/test_fused"
    " db/test_retrain db/test_registry db/test_nets db/test_ensemble db/test_madlib_walkthroughs"
    " db/test_fit db/test_packing db/test_registry_aliases db/test_madlib_words db/test_steering"
    " db/test_predict_one db/test_relate_models client/shell/test_cli_server db/test_madlib_scripts"
    " db/test_ensemble_groups client/test_run db/test_predict db/test_predict_columns client/test_saved"
    " client/test_groups db/test_columns_sources db/test_inspect_net db/test_target_scale"
    " client/shell/test_dashboard db/test_append"
).split()
_PLACES = {ROOT / "tests" / f"{name}.py": place for place, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the slowest test files to the front, and skip tests that the connected server cannot run."""
    if gone := [str(path) for path in _PLACES if not path.exists()]:
        raise pytest.UsageError(f"LONGEST in {__file__} names files that are not there: {', '.join(gone)}")
    items.sort(key=lambda item: _PLACES.get(item.path, len(_PLACES)))
    is_greenplum, version = _server() or (False, 0)
    not_here = {
        "postgresql": "is about PostgreSQL alone" if is_greenplum or CITUS_WORKERS else None,
        "greenplum": None if is_greenplum else "needs a Greenplum cluster",
        "citus": None if CITUS_WORKERS else "needs a Citus cluster",
    }
    for item in items:
        for marker, why in not_here.items():
            if why is not None and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=why))
        if item.get_closest_marker("tensorflow") and not HAS_TENSORFLOW:
            item.add_marker(pytest.mark.skip(reason="TensorFlow has no release for this Python"))
        if item.get_closest_marker("like_greenplum") and version >= 160000:
            reason = "Greenplum is a PostgreSQL 12, and sets what no function may set from 16 on"
            item.add_marker(pytest.mark.skip(reason=reason))


class NamedFailures:
    """A pytest plugin that prints each failure at once.

    A test run of many minutes may be stopped before pytest prints its summary.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = "" if crash is None else f": {str(crash.message).splitlines()[0][:200]}"
            terminal.write(f"\n{report.nodeid} failed{why}\n")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(NamedFailures(config))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Report success if the option `-k` matches no test, since each group of tests runs by itself."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.getoption("keyword"):
        session.exitstatus = pytest.ExitCode.OK


def pytest_report_header() -> str:
    if "PGHOST" not in os.environ:
        return "no server: PGHOST is not set"
    found = _server()
    if found is None:
        return f"no server answers at {os.environ['PGHOST']}"
    is_greenplum, version = found
    name = "Greenplum on PostgreSQL" if is_greenplum else "PostgreSQL"
    return f"{name} {version // 10000}.{version % 10000} at {os.environ['PGHOST']}"


@pytest.fixture(scope="session")
def server() -> None:
    """Fail the test unless PGHOST is set: a test that needs a server is never skipped for lack of one."""
    if "PGHOST" not in os.environ:
        pytest.fail(
            'this test needs the private cluster: use `make test`, or eval "$(make -s env)"', pytrace=False
        )


@pytest.fixture(scope="session")
def greenplum(server: None) -> bool:
    """Whether the server is Greenplum, for tests whose SQL or results differ there."""
    found = _server()
    return found is not None and found[0]


@pytest.fixture(scope="session")
def template(server: None) -> Iterator[str]:
    """The name of a database with the extension, from which the databases of the tests are cloned."""
    name = _unique("template")
    _create_database(name)
    try:
        _run(name, "CREATE EXTENSION cerebro CASCADE")
        yield name
    finally:
        _drop_database(name)


@pytest.fixture(scope="module")
def empty_database(server: None) -> Iterator[str]:
    """The name of a database without the extension."""
    name = _unique("empty")
    _create_database(name)
    yield name
    _drop_database(name)


@pytest.fixture(scope="module")
def database(template: str) -> Iterator[str]:
    """The name of a database that only this test module uses."""
    yield from _clone(template)


@pytest.fixture(scope="session")
def shared_database(template: str) -> Iterator[str]:
    """The name of a database that several test modules use, one after the other."""
    yield from _clone(template)


@pytest.fixture(scope="session")
def client_database(template: str) -> Iterator[str]:
    """The name of the database that all tests of the client use."""
    yield from _clone(template, "client")


def _clone(template: str, purpose: str = "test") -> Iterator[str]:
    name = _unique(purpose)
    _create_database(name, template)
    yield name
    _drop_database(name)


@pytest.fixture
def connect(database: str, role: MakeRole) -> Iterator[Connect]:
    """A function that opens connections to the module's database.

    The connections are closed after the test, before the roles that the test created are dropped.
    """
    opened: list[Connection] = []

    def connect(*, user: str | None = None, autocommit: bool = True) -> Connection:
        connection = _open(database, user)
        connection.autocommit = autocommit
        opened.append(connection)
        return connection

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def db(connect: Connect) -> Connection:
    """A superuser's connection to the module's database, in autocommit mode."""
    return connect()


@pytest.fixture
def sql(db: Connection) -> Sql:
    """A function that runs one statement on `db`, or on the connection `on`, and returns the rows."""

    def sql(query: str | Composable, *values: object, on: Connection | None = None) -> Rows:
        return execute(on or db, query, *values)

    return sql


@pytest.fixture
def role(database: str) -> Iterator[MakeRole]:
    """A function that creates a login role and returns its name; `usage` grants the use of cerebro.

    The roles, with all that they own, are dropped after the test.
    """
    made: list[str] = []

    def role(*, usage: bool = True) -> str:
        name = _unique("role")
        _run(database, "CREATE ROLE {} LOGIN", name)
        made.append(name)
        _run(database, "GRANT CREATE ON SCHEMA public TO {}", name)
        if usage:
            with closing(_open(database)) as connection:
                execute(connection, "SELECT cerebro.grant_usage(%s)", name)
        return name

    yield role
    for name in made:
        _run(database, "DROP OWNED BY {} CASCADE", name)
        _run(database, "DROP ROLE {}", name)
