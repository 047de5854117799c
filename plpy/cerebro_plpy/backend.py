"""Implements `Database` by plpy for this session, and gives the session other rights."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

import plpy  # provided by the server, inside a backend only

from cerebro_plpy import memory
from cerebro_plpy.citus.server import Citus
from cerebro_plpy.cluster.server import Greenplum
from cerebro_plpy.commands import Sent
from cerebro_plpy.database import Row, word
from cerebro_plpy.errors import INTERNAL, QUERY_CANCELED, CerebroError, from_statement
from cerebro_plpy.postgresql import PostgreSQL
from cerebro_plpy.server import Server
from cerebro_plpy.store import citus, guards, interrupts, session
from cerebro_plpy.store.cluster import gangs
from cerebro_plpy.store.cluster.uncancelled import held

T = TypeVar("T")
P = ParamSpec("P")

# Each of these calls is a subtransaction.
_prepare = held(plpy.prepare, only_parses=True)
_execute, _cursor = held(plpy.execute), held(plpy.cursor)
_comment = held(plpy.execute, waits=False)


class Backend:
    """The state of this server process: prepared statements, work that an SQL function is to run with other
    rights, and the current call."""

    def __init__(self) -> None:
        self.plans: dict[tuple[str, tuple[str, ...]], Any] = {}
        # Work that an SQL function with other rights is about to run; see `_through`.
        self.pending: list[Callable[[], None]] = []
        # The search_path of the caller of the current call.
        self.search_path = session.OWN_PATH
        # When the current call began, by the monotonic clock.
        self.called_at = time.monotonic()
        # Whether it reads with the rights of a run's caller, so that a user's code may be running.
        self.looking = False
        # Whether it has the rights of the extension's owner.
        self.owner = False
        # Whether a statement of the package is running, during which Python must not begin another.
        self.stating = False

    @property
    def busy(self) -> bool:
        """Whether a signal handler must not run a statement now.

        Python may run the handler while the server passes rows to Python, and a statement that begins then
        would discard the remaining rows.
        """
        return self.looking or self.stating


def backend() -> Backend:
    return memory.get_instance(Backend)


def is_busy() -> bool:
    return backend().busy


class Session:
    """The caller's session, as a `Database`."""

    @property
    def server(self) -> Server:
        if gangs.IS_CLUSTER:
            return Greenplum(self)
        return Citus(self) if citus.is_distributed(self) else PostgreSQL(self)

    @property
    def search_path(self) -> str:
        return backend().search_path

    @property
    def called_at(self) -> float:
        return backend().called_at

    def query(self, sql: str, types: Sequence[str] = (), values: Sequence[object] = ()) -> list[Row]:
        return _carefully(_run, sql, types, values)

    def query_once(self, sql: str) -> list[Row]:
        return list(_carefully(_execute, sql))

    def scan(
        self, sql: str, types: Sequence[str] = (), values: Sequence[object] = (), *, batch: int = 1000
    ) -> Iterator[list[Row]]:
        cursor = _carefully(_open_cursor, sql, types, values)
        fetch, close = held(cursor.fetch), held(cursor.close)
        while rows := _carefully(fetch, batch):
            yield list(rows)
        close()

    def notice(self, message: str) -> None:
        _say(plpy.notice, word(message))

    def warning(self, message: str) -> None:
        _say(plpy.warning, word(message))

    def look_for_cancel(self) -> None:
        _say(plpy.log, "cerebro: a run is told of something, a cancel perhaps")

    def run_here(self, sent: Sent) -> Mapping[str, Any]:
        from cerebro_plpy.segment import handlers

        # Through JSON, so that the handler gets the same values as in a segment session.
        return handlers.carry_out(self, Sent.from_request(sent.way.name, json.loads(sent.as_json())))

    def as_owner(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        own = backend()
        if own.owner:
            return work(*arguments, **named)
        own.owner = True
        try:
            return _through(partial(self.query, guards.AS_OWNER), partial(work, *arguments, **named))
        finally:
            own.owner = False

    def as_caller(self, role: str, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        _refuse_as_owner()
        return work(*arguments, **named)


class SegmentSession(Session):
    """A segment session, logged in as the extension's owner, as a `Database`."""

    def __init__(self, look_seconds: int = 0) -> None:
        self.look_seconds = look_seconds

    def as_owner(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        return work(*arguments, **named)

    def as_caller(self, role: str, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do work that may only read, with the rights of the run's caller, and roll back all that it did.

        Without the rollback, a deferred trigger or a cursor WITH HOLD would run at COMMIT, as the owner.
        """
        guard = guards.make_guard(self, role)

        def look() -> T:
            self.query(guards.become(role))
            return _look(self, guard, partial(work, *arguments, **named), self.look_seconds)

        try:
            with gangs.bound(self, self.look_seconds):
                return _undone(look)
        finally:
            self.query(guards.BECOME_OWNER)
            guards.drop_locks(self)


class DrivingSession(Session):
    """The driving session of a run in the background, logged in as the extension's owner, as a `Database`.

    The method `drive` does work with the rights of the run's caller, inside a guard that may write. Work that
    may run a user's code uses `as_caller`: it is done in a second guard inside the first, and its changes are
    rolled back.
    """

    def __init__(self, role: str, look_seconds: int) -> None:
        own = SegmentSession()
        self._role, self.look_seconds = role, look_seconds
        self._reads, self._writes = guards.make_guard(own, role), guards.make_guard(own, role, writes=True)

    def drive(self, work: Callable[[], T]) -> T:
        self.query(guards.become(self._role))
        try:
            return _through(partial(self.query, self._writes), work)
        finally:
            self.query(guards.BECOME_OWNER)

    def as_caller(self, role: str, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        _refuse_as_owner()
        try:
            with gangs.bound(self, self.look_seconds):
                look = partial(work, *arguments, **named)
                return _undone(partial(_look, self, self._reads, look, self.look_seconds))
        finally:
            guards.drop_locks(self)


def _refuse_as_owner() -> None:
    if backend().owner:
        raise CerebroError("code of a user's would run as the extension's owner", sqlstate=INTERNAL)


def _look(db: Session, guard: str, work: Callable[[], T], seconds: int) -> T:
    """Do work inside the guard that the statement `guard` calls, for at most `seconds`; return its result.

    Meanwhile a user's code that runs in the guard cannot call the extension's public functions.
    """
    began = time.monotonic()
    backend().looking = True
    interrupts.begin_limit(seconds)
    try:
        return _through(partial(db.query, guard), work)
    except CerebroError as error:
        if seconds and error.sqlstate == QUERY_CANCELED and time.monotonic() - began >= seconds:
            raise interrupts.took_too_long(seconds) from None
        raise
    finally:
        interrupts.end_limit()
        backend().looking = False


def _undone(work: Callable[[], T]) -> T:
    """Do work, roll back all its changes, and return its result."""
    citus.refuse_without_nodes()
    undone = plpy.subtransaction()
    held(undone.enter)()
    try:
        return work()
    finally:
        held(undone.exit)(Exception, None, None)
        interrupts.let_cancels_wait()


def _carefully(statement: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run a statement, and raise an error of the server as a CerebroError.

    This is not a context manager, because that crashed Greenplum's coordinator when an error of the server
    skipped Python's frames (tests/greenplum/test_cluster.py, a session that has lost its processes).
    """
    if interrupts.must_look():
        Session().look_for_cancel()
    gangs.refuse_without_segments()
    citus.refuse_without_nodes()
    own = backend()
    before, own.stating = own.stating, True
    try:
        return statement(*arguments, **named)
    except plpy.SPIError as error:
        raise citus.judge(from_statement(error)) from None
    finally:
        own.stating = before
        interrupts.let_cancels_wait()


def _say(way: Callable[[str], None], message: str) -> None:
    """Send a message by `way`, such as plpy.notice; raise a CerebroError if the server acts on a cancel."""
    try:
        way(message)
    except plpy.Error as said:
        raise CerebroError(str(said), detail=said.detail, hint=said.hint, sqlstate=said.sqlstate) from None


def _run(sql: str, types: Sequence[str], values: Sequence[object]) -> list[Row]:
    """Run a statement and return its rows; a statement that is unlikely to be repeated gets no plan."""
    if types or sql.startswith(session.REPEATED):
        return list(_execute(_plan(sql, types), list(values)))
    return list(_comment(sql) if sql.startswith(session.COMMENT) else _execute(sql))


def _open_cursor(sql: str, types: Sequence[str], values: Sequence[object]) -> Any:
    return _cursor(_plan(sql, types), list(values))


def _plan(sql: str, types: Sequence[str]) -> Any:
    """Return the plan of a statement, which is prepared once per session."""
    key, plans = (sql, tuple(types)), backend().plans
    if key not in plans:
        plans[key] = _prepare(sql, list(types))
    return plans[key]


def _through(door: Callable[[], object], work: Callable[[], T]) -> T:
    """Run work inside an SQL function that has other rights, and return its result.

    `door` runs the statement that calls the function, which then runs the last pending work of `Backend`. An
    error of the work is raised again afterwards, because an error that passes through SQL loses its class.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        own.stating = False
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            own.stating = True

    own = backend()
    pending = own.pending
    pending.append(run)
    try:
        door()
    finally:
        # If the function was not called, a later call of it must not run this work.
        pending[:] = [other for other in pending if other is not run]
    if errors:
        raise errors[0]
    return results[0]
