"""Sessions of the server: those of an engine, or one connection that somebody else owns."""

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
# A longer wait says what it is for.
QUIET_SECONDS = 3.0
_CALLED = re.compile(r"cerebro\.(\w+)\(")
OWN_PATH = "pg_catalog, pg_temp"
_ADDRESSES = (
    "Write postgresql://user@host:port/database, postgresql:///database, or 'host=… dbname=…' as for psql."
)


class Link(Protocol):
    """A lender of connections; what is done on one is committed when it is given back."""

    def session(self) -> AbstractContextManager[Connection]:
        """Lend one connection."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether what is done here is part of a transaction that somebody else ends."""
        ...

    def close(self) -> None:
        """Close what was opened here, and nothing else."""
        ...


class EngineLink:
    """Connections of an engine's pool."""

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
    """One connection that was open before; a transaction that is begun on it stays its owner's to end."""

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
    """Open what an address names, or take what is open already."""
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
    # The pool is SQLAlchemy's; the address is libpq's own, with its services, files and variables.
    return EngineLink(
        create_engine("postgresql+psycopg2://", creator=lambda: psycopg2.connect(address)), owned=True
    )


def _for_libpq(address: str) -> str:
    """Return the address without SQLAlchemy's driver; refuse what libpq cannot read."""
    scheme, colon, rest = address.partition("://")
    dialect = scheme.partition("+")[0]
    if colon and dialect not in ("postgresql", "postgres"):
        raise CerebroError(f"{dialect} is not a server that cerebro runs in", hint=_ADDRESSES)
    plain = f"postgresql://{rest}" if colon else address
    try:
        psycopg2.extensions.parse_dsn(plain)
    except psycopg2.ProgrammingError:
        # What cannot be read may be a password in the wrong place.
        raise CerebroError("the text is not the address of a database", hint=_ADDRESSES) from None
    return plain


# The path set to what it is: Greenplum's segments then begin with it, and not with the one that comes next.
_SAME_PATH = "SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('search_path'), true)"


def pinned(statement: str) -> str:
    """Return a statement of the client's own, which needs no name of the user's, as it is sent by itself.

    Whoever may make a function or an operator where the user's search_path looks can give it types that fit
    better than those of the server's own, and have it called with the user's rights. Here no such place is
    looked at. Statements that do need the user's names have every function, operator and type qualified
    instead. Compiling such a statement takes the server ten times as long as running it.
    """
    return f"{_SAME_PATH};\nSET LOCAL search_path = {OWN_PATH};\nSET LOCAL jit = off;\n{statement}"


def look(connection: Connection, statement: str, values: tuple[object, ...] = ()) -> list[Row]:
    """Send such a statement; what comes after it in its transaction finds the search_path as it was."""
    with setting(connection, "search_path", OWN_PATH), setting(connection, "jit", "off"):
        return execute(connection, statement, values)


@contextmanager
def setting(connection: Connection, name: str, value: str) -> Iterator[None]:
    """Give a setting of the session another value for a while."""
    change = "SELECT pg_catalog.set_config(%s, %s, %s)"
    local = not connection.autocommit
    # Set to what it is first, as in _SAME_PATH.
    same = "SELECT pg_catalog.set_config(%s, pg_catalog.current_setting(%s), %s) AS before"
    before = execute(connection, same, (name, name, local))[0]["before"]
    execute(connection, change, (name, value, local))
    try:
        yield
    finally:
        # A transaction that has failed takes the value with it.
        if connection.info.transaction_status != TRANSACTION_STATUS_INERROR:
            execute(connection, change, (name, before, local))


def execute(
    connection: Connection, statement: str, values: tuple[object, ...] = (), *, quietly: bool = False
) -> list[Row]:
    """Send one statement, pass on what the server tells meanwhile, and return the rows."""
    called = _CALLED.search(statement)
    waits_for = "the server" if called is None else f"cerebro.{called[1]}"
    return _interruptible(connection, lambda: _send(connection, statement, values), waits_for, quietly)


def copy(connection: Connection, statement: str, rows: TextIO) -> None:
    """Send the rows of a COPY, or take them."""

    def send() -> None:
        with connection.cursor() as cursor:
            cursor.copy_expert(statement, rows)

    _interruptible(connection, send, "rows")


def _interruptible(connection: Connection, work: Callable[[], T], waits_for: str, quietly: bool = False) -> T:
    """Wait for the server in a thread of its own, since a waiting thread hears no Ctrl-C: this one then
    cancels the statement, so that nothing goes on unseen by who has asked for its end."""
    connection.notices.clear()
    sent = _in_thread(work)
    try:
        with suppress(TimeoutError):
            return sent.result(None if quietly else QUIET_SECONDS)
        # What the server tells comes when the statement is over.
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
    """Run work in a thread that keeps nobody from ending the program, as those of an executor would."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="cerebro_db", daemon=True).start()
    return future


def _say(text: str) -> None:
    """Tell whoever listens to the log, or sits before a terminal or a notebook."""
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
