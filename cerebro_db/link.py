"""Lends server connections, from the pool of an SQLAlchemy engine or one that the caller has opened."""

from __future__ import annotations

import logging
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol, TextIO, TypeVar

import psycopg2
import psycopg2.extensions
from psycopg2.extensions import TRANSACTION_STATUS_IDLE, TRANSACTION_STATUS_INERROR
from sqlalchemy import URL, Engine, PoolProxiedConnection, create_engine
from sqlalchemy.exc import DBAPIError

from cerebro_db.errors import CerebroError, CerebroWarning, from_server
from cerebro_db.statements import plain

Connection = psycopg2.extensions.connection
Row = dict[str, Any]
T = TypeVar("T")

_log = logging.getLogger("cerebro_db")
# After this time, a message says what the client is waiting for.
QUIET_SECONDS = 3.0
_CALLED = re.compile(r"cerebro\.(\w+)\(")
OWN_PATH = "pg_catalog, pg_temp"
_ADDRESSES = (
    "Write postgresql://user@host:port/database, postgresql:///database, or 'host=… dbname=…' as for psql."
)


class Link(Protocol):
    """A source of connections. Work on a connection is committed at the end of its `session` block."""

    def session(self) -> AbstractContextManager[Connection]:
        """Return a context manager that lends one connection."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether statements run in a transaction that the caller has begun, and must end."""
        ...

    def close(self) -> None:
        """Close the connections that this object has opened, and no others."""
        ...


class EngineLink:
    """A source of connections from the pool of an SQLAlchemy engine."""

    def __init__(self, engine: Engine, *, owned: bool) -> None:
        if engine.dialect.driver != "psycopg2":
            raise CerebroError(
                f"the engine speaks {engine.dialect.name} through {engine.dialect.driver}",
                hint='Make it with create_engine("postgresql+psycopg2://…"), or give engine.url.',
            )
        self._engine = engine
        self._owned = owned

    def session(self) -> AbstractContextManager[Connection]:
        return self._lent(self._engine.raw_connection)

    @property
    def in_transaction(self) -> bool:
        return False

    @contextmanager
    def _lent(self, lend: Callable[[], PoolProxiedConnection]) -> Iterator[Connection]:
        try:
            lent = lend()
        except DBAPIError as error:
            if isinstance(error.orig, psycopg2.Error):
                raise from_server(error.orig) from error
            raise
        except psycopg2.Error as error:
            raise from_server(error) from error
        try:
            connection: Any = lent.driver_connection
            with _transaction(connection):
                yield connection
        finally:
            lent.close()

    def close(self) -> None:
        if self._owned:
            self._engine.dispose()


class ConnectionLink:
    """A source that lends the caller's connection. If the caller is in a transaction, it commits nothing."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._one_at_a_time = threading.RLock()

    @contextmanager
    def session(self) -> Iterator[Connection]:
        with self._one_at_a_time:
            if self._connection.closed:
                raise CerebroError("the connection that the client was given is closed")
            if self.in_transaction:
                yield self._connection
                return
            with _transaction(self._connection):
                yield self._connection

    @property
    def in_transaction(self) -> bool:
        return self._connection.info.transaction_status != TRANSACTION_STATUS_IDLE

    def close(self) -> None:
        pass


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(psycopg2.Error):
            connection.rollback()
        raise
    connection.commit()


def open_link(target: str | URL | Engine | Connection) -> Link:
    """Return a source of connections for an address, an SQLAlchemy engine or a psycopg2 connection."""
    if isinstance(target, Engine):
        return EngineLink(target, owned=False)
    if isinstance(target, psycopg2.extensions.connection):
        return ConnectionLink(target)
    if isinstance(target, URL):
        target = target.render_as_string(hide_password=False)
    if not isinstance(target, str):
        raise CerebroError(
            f"a database cannot be reached through a {type(target).__module__}.{type(target).__qualname__}",
            hint="Give its address, an Engine of SQLAlchemy's, or a connection of psycopg2's.",
        )
    address = _for_libpq(target)
    # SQLAlchemy has the pool; libpq reads the address, and so its service files and PG* variables.
    return EngineLink(
        create_engine("postgresql+psycopg2://", creator=lambda: psycopg2.connect(address)), owned=True
    )


def _for_libpq(address: str) -> str:
    """Return the address without SQLAlchemy's driver name; raise CerebroError if libpq cannot read it."""
    scheme, colon, rest = address.partition("://")
    dialect = scheme.partition("+")[0]
    if colon and dialect not in ("postgresql", "postgres"):
        raise CerebroError(f"{dialect} is not a server that cerebro runs in", hint=_ADDRESSES)
    plain = f"postgresql://{rest}" if colon else address
    try:
        psycopg2.extensions.parse_dsn(plain)
    except psycopg2.ProgrammingError:
        # The text may hold a password, so the message does not repeat it.
        raise CerebroError("the text is not the address of a database", hint=_ADDRESSES) from None
    return plain


# Sets search_path to its own value, so that Greenplum's segments start with it and not with the next value.
_SAME_PATH = "SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('search_path'), true)"


def pinned(statement: str) -> str:
    """Return a statement with commands before it that set its search_path to pg_catalog and pg_temp.

    Use it for the client's own statements, which need no object that is found by the user's search_path.
    Anybody who may create functions or operators in a schema on that path can give one of them argument types
    that fit better than those of the server's own, and the server would run it with the user's rights.
    Statements that need the user's search_path qualify every function, operator and type instead. The
    commands also turn off JIT, because compiling such a statement takes ten times as long as running it.
    """
    return f"{_SAME_PATH};\nSET LOCAL search_path = {OWN_PATH};\nSET LOCAL jit = off;\n{statement}"


def look(connection: Connection, statement: str, values: tuple[object, ...] = ()) -> list[Row]:
    """Send a statement with search_path and JIT set as in `pinned`, restore both, and return the rows."""
    with setting(connection, "search_path", OWN_PATH), setting(connection, "jit", "off"):
        return execute(connection, statement, values)


@contextmanager
def setting(connection: Connection, name: str, value: str) -> Iterator[None]:
    """Set a configuration parameter of the session within the block, and restore its value afterwards."""
    change = "SELECT pg_catalog.set_config(%s, %s, %s)"
    local = not connection.autocommit
    # First set the parameter to its own value, as in _SAME_PATH.
    same = "SELECT pg_catalog.set_config(%s, pg_catalog.current_setting(%s), %s) AS before"
    before = execute(connection, same, (name, name, local))[0]["before"]
    execute(connection, change, (name, value, local))
    try:
        yield
    finally:
        # The rollback of a failed transaction restores the value.
        if connection.info.transaction_status != TRANSACTION_STATUS_INERROR:
            execute(connection, change, (name, before, local))


def execute(
    connection: Connection, statement: str, values: tuple[object, ...] = (), *, quietly: bool = False
) -> list[Row]:
    """Send one statement and return its rows; report the server's notices and warnings unless `quietly`."""
    called = _CALLED.search(statement)
    waits_for = "the server" if called is None else f"cerebro.{called[1]}"
    return _interruptible(connection, lambda: _send(connection, statement, values), waits_for, quietly)


def copy(connection: Connection, statement: str, rows: TextIO) -> None:
    """Run a COPY statement that reads its rows from `rows` (FROM STDIN) or writes them to it (TO STDOUT)."""

    def send() -> None:
        with connection.cursor() as cursor:
            cursor.copy_expert(statement, rows)

    _interruptible(connection, send, "rows")


def _interruptible(connection: Connection, work: Callable[[], T], waits_for: str, quietly: bool = False) -> T:
    """Run `work`, which waits for the server, in another thread; on Ctrl-C, cancel its statement.

    A thread that waits for the server would not notice Ctrl-C.
    """
    connection.notices.clear()
    sent = _in_thread(work)
    try:
        with suppress(TimeoutError):
            return sent.result(None if quietly else QUIET_SECONDS)
        # The server's notices arrive only when the statement is over.
        _say(f"waiting for {waits_for}")
        return sent.result()
    except KeyboardInterrupt:
        connection.cancel()
        with suppress(psycopg2.Error):
            sent.result()
        raise
    except psycopg2.Error as error:
        raise from_server(error) from error
    finally:
        if not quietly:
            _tell(connection)


def _send(connection: Connection, statement: str, values: tuple[object, ...]) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(statement, tuple(map(plain, values)) or None)
        if cursor.description is None:
            return []
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _in_thread(work: Callable[[], T]) -> Future[T]:
    """Start `work` in a daemon thread, which does not keep the program from ending, and return its future."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="cerebro_db", daemon=True).start()
    return future


def _say(text: str) -> None:
    """Log a text at level INFO; if INFO is off, print it to stderr in a terminal or a notebook."""
    _log.info("%s", text)
    if not _log.isEnabledFor(logging.INFO) and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        print(text, file=sys.stderr, flush=True)


def _tell(connection: Connection) -> None:
    for notice in connection.notices:
        severity, _, text = notice.strip().partition(":")
        if severity == "WARNING":
            warnings.warn(text.strip(), CerebroWarning, stacklevel=2)
        else:
            _log.info("%s", text.strip())
    connection.notices.clear()
