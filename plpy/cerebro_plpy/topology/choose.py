"""Chooses the topology of a call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cerebro_plpy.commands import Engine
from cerebro_plpy.database import Database
from cerebro_plpy.errors import CONNECTION_FAILURE, TOO_MANY_CONNECTIONS, CerebroError
from cerebro_plpy.store import interrupts, session
from cerebro_plpy.topology import Topology
from cerebro_plpy.topology.handing import HandingTopology
from cerebro_plpy.topology.inline import InlineTopology
from cerebro_plpy.topology.local import Bounds, LocalTopology, check_room, own_pids

IDLE_MINUTES = 30
RETRY_SECONDS = 30
# If rows are passed to sessions in a file, one session is used for so many rows, or for so many rows times
# epochs times configs.
ROWS_OF_A_SESSION, STEPS_OF_A_SESSION = 1000, 500_000

Local = TypeVar("Local", bound=LocalTopology)


@dataclass(frozen=True)
class RowsToHand:
    """The number of rows that sessions may get in a file; `times` is the product of epochs and configs.

    Sessions that an earlier run has `started` take any number of rows, since nothing is to be started.
    """

    rows: int
    times: int
    started: int = 0

    @property
    def sessions(self) -> int:
        """The number of sessions that the rows are enough for; 0 instead of 1, which would gain nothing."""
        steps = self.rows * self.times
        found = max(self.started, self.rows // ROWS_OF_A_SESSION, steps // STEPS_OF_A_SESSION)
        return found if found > 1 else 0


def choose(db: Database, tables: Sequence[int], rows: RowsToHand | None = None) -> Topology:
    """Return a topology of segment sessions if these can log in and see the tables, else an inline topology.

    If `rows` are given, sessions that do not see the tables may get the rows in a file. If the topology is
    inline, tell the caller why.
    """
    topology, reason = find_topology(db, tables, rows)
    if reason is not None:
        db.notice(f"this run uses only this session, one segment after the other, which is slower: {reason}")
    return topology


def find_topology(
    db: Database, tables: Sequence[int], rows: RowsToHand | None = None
) -> tuple[Topology, str | None]:
    """Return the topology of a call, and the reason if it is inline, else None."""
    reason, handed = find_sessions(db, tables, rows)
    if reason is None or handed:
        try:
            return (_choose_handing(db, handed) if handed else choose_local(db)), None
        except CerebroError as error:
            if error.sqlstate not in (CONNECTION_FAILURE, TOO_MANY_CONNECTIONS if handed else None):
                raise
            reason = f"{error.message}. {error.detail} {error.hint}"
    return InlineTopology(db), reason


def find_sessions(db: Database, tables: Sequence[int], rows: RowsToHand | None) -> tuple[str | None, int]:
    """Return why segment sessions do not see the tables, and how many sessions may get the rows in a file.

    The reason is None if they see the tables, and then the number is 0. The number is also 0 for few rows,
    because each session takes seconds to start and compiles its own programs.
    """
    reason = why_not_local(db, tables)
    if reason is None or rows is None or not db.server.hands_rows or why_not_local(db, []) is not None:
        return reason, 0
    few = "" if rows.sessions else f", and {rows.rows} rows are too few to be handed to others"
    return reason + few, rows.sessions


def _choose_handing(db: Database, most: int) -> HandingTopology:
    # At least a control session and one session that trains.
    room = session.room(db, session.current_user(db))
    check_room(room, 2 - len(own_pids()))
    handing = _local(db, HandingTopology, interrupts.look_seconds(db), background=False)
    handing.run_here, handing.most = db.run_here, most
    handing.open([], 0)
    return handing


def choose_local(db: Database, look_seconds: int | None = None) -> LocalTopology:
    """Return a topology of segment sessions, with its control session open.

    For a run in the background, `look_seconds` is the most time that the caller's code, such as views, may
    take while tables are read.
    """
    seconds = interrupts.look_seconds(db) if look_seconds is None else look_seconds
    local = _local(db, db.server.segment_sessions, seconds, background=look_seconds is not None)
    local.open([], 0)
    return local


def _local(db: Database, kind: type[Local], look_seconds: int, *, background: bool) -> Local:
    fixed = session.settings(db)
    role = session.current_user(db)
    bounds = Bounds(
        idle_minutes=int(fixed.get("idle_minutes") or IDLE_MINUTES),
        patience=int(fixed.get("retry_seconds") or RETRY_SECONDS),
        look_seconds=look_seconds,
        background=background,
        most_sessions=partial(_most_sessions, db),
        room=partial(session.room, db, role),
    )
    return kind(role, session.target(db), bounds, partial(interrupts.tick, db), db.notice)


def warm_sessions(db: Database, engines: Sequence[Engine], segments: int) -> LocalTopology | None:
    """Return a topology if an earlier run has left all its sessions open, else None. Open no session."""
    topology = _local(db, db.server.segment_sessions, interrupts.look_seconds(db), background=False)
    return topology if topology.has(engines, segments) else None


def why_not_local(db: Database, tables: Sequence[int]) -> str | None:
    """Return why other sessions do not see these tables as the caller's transaction does; None if they do."""
    if session.any_temporary(db, list(tables)):
        return "some of its tables are temporary, which no other session can see"
    if session.own_strong_locks(db, list(tables)):
        return "this transaction has made or changed its tables, which no other session can see before COMMIT"
    if session.isolation(db) != "read committed":
        return f"the transaction is {session.isolation(db)}; at read committed it would use segment sessions"
    return None


def _most_sessions(db: Database) -> int | None:
    """Return how many sessions the setting "sessions" leaves to this run, at least 1; None if not set."""
    bound = session.setting(db, "sessions")
    if bound is None:
        return None
    return max(1, int(bound) - session.other_segment_sessions(db, own_pids()))


def cores() -> int:
    return len(os.sched_getaffinity(0))
