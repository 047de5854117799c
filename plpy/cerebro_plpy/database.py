"""The interface `Database` to the session that the package runs in; `backend.py` implements it by plpy."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from cerebro_plpy import memory
from cerebro_plpy.errors import CerebroError

if TYPE_CHECKING:
    from cerebro_plpy.commands import Sent
    from cerebro_plpy.server import Server

Row = Mapping[str, Any]
T = TypeVar("T")
P = ParamSpec("P")
# How many seconds a call reuses an answer of the server; see `kept_for_call`.
_KEPT_SECONDS = 1.0


class Database(Protocol):
    """A session of the server: it runs SQL with the rights of the current function, or with other rights."""

    @property
    def server(self) -> Server:
        """The implementation of `Server` for this server: PostgreSQL, Citus or Greenplum."""
        ...

    @property
    def search_path(self) -> str:
        """The caller's search_path, in which tables named without a schema are looked up."""
        ...

    @property
    def called_at(self) -> float:
        """When the current call from SQL began, by the monotonic clock."""
        ...

    def query(self, sql: str, types: Sequence[str] = (), values: Sequence[object] = ()) -> list[Row]:
        """Run one statement, prepared once per session, and return its rows."""
        ...

    def query_once(self, sql: str) -> list[Row]:
        """Run one statement without keeping a plan, which lets the server use parallel workers."""
        ...

    def scan(
        self, sql: str, types: Sequence[str] = (), values: Sequence[object] = (), *, batch: int = 1000
    ) -> Iterator[list[Row]]:
        """Yield the rows of a large result in lists of up to `batch` rows, read by a cursor."""
        ...

    def notice(self, message: str) -> None:
        """Send a NOTICE to the caller."""
        ...

    def warning(self, message: str) -> None:
        """Send a WARNING to the caller."""
        ...

    def look_for_cancel(self) -> None:
        """Let the server act on a pending cancel, by sending a line to its log, which takes no statement."""
        ...

    def run_here(self, sent: Sent) -> Mapping[str, Any]:
        """Carry out a command in this session, as a segment session would; return its answer."""
        ...

    def as_owner(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call `work` with the rights of the extension's owner. The work must not run a user's SQL."""
        ...

    def as_caller(self, role: str, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call `work` with the rights of `role`, a run's caller; code in `work` cannot get other rights."""
        ...


def as_owner(function: Callable[Concatenate[Database, P], T]) -> Callable[Concatenate[Database, P], T]:
    """Wrap a function, which must not run a user's SQL, to run with the rights of the extension's owner."""

    @wraps(function)
    def with_rights(db: Database, *arguments: P.args, **named: P.kwargs) -> T:
        return db.as_owner(function, db, *arguments, **named)

    return with_rights


class _Wording:
    """A holder of the function that changes notices and errors; a block of `worded()` sets it."""

    def __init__(self) -> None:
        self.change: Callable[[str], str] = str


def word(message: str) -> str:
    """Return a message for the caller, changed by the block of `worded()` around the call if there is one."""
    return memory.get_instance(_Wording).change(message)


@contextmanager
def worded(change: Callable[[str], str]) -> Generator[None]:
    """Within the block, change the text of notices and errors for the caller by `change`."""
    wording = memory.get_instance(_Wording)
    before, wording.change = wording.change, change
    try:
        yield
    except CerebroError as error:
        raise CerebroError(
            change(error.message),
            detail=error.detail and change(error.detail),
            hint=error.hint and change(error.hint),
            sqlstate=error.sqlstate,
        ) from error
    finally:
        wording.change = before


class _ReadByCall:
    """The answers that functions wrapped by `kept_for_call` have read in the current call."""

    def __init__(self) -> None:
        self.called_at = 0.0
        self.until = 0.0
        self.found: dict[Hashable, Any] = {}


def kept_for_call(function: Callable[Concatenate[Database, P], T]) -> Callable[Concatenate[Database, P], T]:
    """Wrap a function that reads facts which are the same for all roles, so that it reads less often.

    During a call from SQL, what it read for the same arguments is returned again for up to a second. On
    Greenplum each statement of Python is expensive, because it is sent to every segment.
    """

    @wraps(function)
    def kept(db: Database, *arguments: P.args, **named: P.kwargs) -> T:
        known, now = memory.get_instance(_ReadByCall), time.monotonic()
        if known.called_at != db.called_at or now >= known.until:
            known.called_at, known.until = db.called_at, now + _KEPT_SECONDS
            known.found.clear()
        key = function, arguments, tuple(named.items())
        if key not in known.found:
            known.found[key] = function(db, *arguments, **named)
        return known.found[key]

    return kept
