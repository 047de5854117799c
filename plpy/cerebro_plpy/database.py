"""Database, the interface to the session that the package runs in; `backend` implements it over plpy."""

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
# How long a call relies on what it has read once.
_KEPT_SECONDS = 1.0


class Database(Protocol):
    """One backend's SQL, with whatever rights the current function has."""

    @property
    def server(self) -> Server:
        """The way in which this server, PostgreSQL or Greenplum, does things."""
        ...

    @property
    def search_path(self) -> str:
        """The caller's search_path, for tables that are named without a schema."""
        ...

    @property
    def called_at(self) -> float:
        """The time of the caller's call, by the monotonic clock."""
        ...

    def query(self, sql: str, types: Sequence[str] = (), values: Sequence[object] = ()) -> list[Row]:
        """Run one statement, prepared once per session, and return its rows."""
        ...

    def query_once(self, sql: str) -> list[Row]:
        """Run one long statement without keeping its plan, so that the server may use several workers."""
        ...

    def scan(
        self, sql: str, types: Sequence[str] = (), values: Sequence[object] = (), *, batch: int = 1000
    ) -> Iterator[list[Row]]:
        """Read a large result through a cursor, `batch` rows at a time."""
        ...

    def notice(self, message: str) -> None:
        """Tell the caller how things go."""
        ...

    def warning(self, message: str) -> None:
        """Tell the caller what they should look at."""
        ...

    def look_for_cancel(self) -> None:
        """Have the server act on a cancel that it was told of, by a line in its log and no statement."""
        ...

    def run_here(self, sent: Sent) -> Mapping[str, Any]:
        """Carry out in the caller's own session a command that would go to a segment session."""
        ...

    def as_owner(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do work with the rights of the extension's owner. The work must run no SQL of a user's."""
        ...

    def as_caller(self, role: str, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do work with the rights of the run's caller and with no way to gain others."""
        ...


def as_owner(function: Callable[Concatenate[Database, P], T]) -> Callable[Concatenate[Database, P], T]:
    """Wrap a function to run with the rights of the extension's owner. It must run no SQL of a user's."""

    @wraps(function)
    def with_rights(db: Database, *arguments: P.args, **named: P.kwargs) -> T:
        return db.as_owner(function, db, *arguments, **named)

    return with_rights


class _Wording:
    """The form in which messages go to the caller: as they are, unless a call says otherwise."""

    def __init__(self) -> None:
        self.change: Callable[[str], str] = str


def word(message: str) -> str:
    """Return a message as the call under way has it told."""
    return memory.get_instance(_Wording).change(message)


@contextmanager
def worded(change: Callable[[str], str]) -> Generator[None]:
    """Have the caller read notices and errors as `change` returns them."""
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
    """The answers that the call under way has had from the server."""

    def __init__(self) -> None:
        self.called_at = 0.0
        self.until = 0.0
        self.found: dict[Hashable, Any] = {}


def kept_for_call(function: Callable[Concatenate[Database, P], T]) -> Callable[Concatenate[Database, P], T]:
    """Wrap a function that reads what is the same for all roles: one call reads it once, and again after a
    second.

    On Greenplum each statement of Python's is told to every segment, however small it is.
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
