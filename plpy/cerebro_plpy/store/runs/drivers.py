"""SQL on the sessions of runs: which one decides, which is the control session, and which train.

A run's control session holds an advisory lock. So another session can tell whether the run is still under
way, and cannot take the run over before the control session has ended or released the lock.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from cerebro_plpy.database import Database, Row, as_owner
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.store import session
from cerebro_plpy.store.dialect import is_greenplum
from cerebro_plpy.store.plain import as_text
from cerebro_plpy.store.writing import Writing

# The session behind a run holds an advisory lock: its class is the run's number, the upper half of its object
# this mark, the lower half drawn. Any role may take any such lock, and so may code of a caller's that a
# segment session runs: that one cannot be had must keep nobody from a run, and that one is held proves
# nothing unless it is the very lock, held by the very session, that the run's row of _driver names.
_LOCK_MARK = 0x0CE4
_LOCK_DRAWS = 1000
# The sessions of a caller that died notice it when their visit ends.
_LOOKS, _BETWEEN_LOOKS_SECONDS = 50, 0.1
_LOCKS = (
    "pg_locks AS l WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted"
    " AND l.classid = $1::bigint::oid AND l.objid::bigint >> 16 = $2"
)


_MARK = (
    "INSERT INTO cerebro._driver (run_id, pid, lock, driver, sessions, at)"
    " SELECT r.run_id, r.pid, r.lock, r.driver, r.sessions, r.at"
    " FROM pg_catalog.jsonb_populate_record(NULL::cerebro._driver, $1::jsonb) AS r"
    " ON CONFLICT (run_id) DO UPDATE SET pid = excluded.pid, lock = excluded.lock, driver = excluded.driver,"
    " sessions = excluded.sessions, at = excluded.at"
)


# Another session may have got the number of one that has ended since.
_STILL_THERE = "a.datname = current_database() AND a.backend_start <= $2::timestamptz"
_OWN_SESSIONS = (
    "pg_stat_activity AS a JOIN pg_roles AS r ON r.oid = a.usesysid"
    f" WHERE r.rolsuper AND a.pid = ANY ($1) AND a.application_name LIKE 'cerebro%' AND {_STILL_THERE}"
)


@dataclass(frozen=True)
class Behind:
    """The process numbers of a run's driving session and of the sessions that train for it."""

    driver: int
    sessions: list[int]


@as_owner
def hold(db: Database, run_id: int, behind: Behind) -> list[Writing]:
    """Take a run's lock, and return the writings that mark this session as the run's control session.

    Raise an error if another session is the control session. The mark holds until this session ends or calls
    `let_go`. Until then this session must run no code of a user's, which could release the lock.
    """
    # Who stands behind it and says so anew need not be let in: another may look at the run at this moment.
    if not (holds(db, run_id) and _own_locks(db, run_id)) and not _is_free(db, run_id):
        raise _running(run_id)
    return hold_new(db, run_id, behind)


@as_owner
def hold_new(db: Database, run_id: int, behind: Behind) -> list[Writing]:
    """Take a run's lock, and return the writings that mark this session as the run's control session.

    This does not check for another control session: a new run has none, and for other runs `hold` checks.
    """
    drawn = (_try_lock(db, run_id) for _ in range(_LOCK_DRAWS))
    lock = next((lock for lock in drawn if lock is not None), None)
    if lock is None:
        raise _running(run_id)
    at = datetime.now(UTC).isoformat()
    row = {"run_id": run_id, "pid": os.getpid(), "lock": lock, "at": at, **asdict(behind)}
    return [(_MARK, row)]


def _own_locks(db: Database, run_id: int) -> bool:
    query = f"SELECT FROM {_LOCKS} AND l.pid = pg_backend_pid()"
    return bool(db.query(query, ["bigint", "bigint"], [_lock_class(run_id), _LOCK_MARK]))


def _running(run_id: int) -> CerebroError:
    return CerebroError(
        f"run {run_id} is running",
        detail="Another session is running it.",
        hint="Wait for it, or cancel it there.",
        sqlstate=WRONG_STATE,
    )


def _is_free(db: Database, run_id: int) -> bool:
    """Return whether no other session is the run's control session; none can become it before this
    transaction ends."""
    if is_greenplum(db):
        # Greenplum would take this lock for FOR UPDATE too, and say so each time.
        db.query("LOCK TABLE cerebro._run IN EXCLUSIVE MODE")
        return not held_elsewhere(db, run_id)
    kept = db.query("SELECT FROM cerebro._run WHERE run_id = $1 FOR UPDATE SKIP LOCKED", ["bigint"], [run_id])
    if not kept and db.query("SELECT FROM cerebro._run WHERE run_id = $1", ["bigint"], [run_id]):
        return False
    return not held_elsewhere(db, run_id)


@as_owner
def held_elsewhere(db: Database, run_id: int) -> bool:
    """Return whether another session is the run's control session and still has the run's lock."""
    # In two steps: Greenplum asks its segments for their locks, and cannot while they read a table.
    found = db.query(
        "SELECT pid, lock FROM cerebro._driver WHERE run_id = $1 AND pid <> pg_backend_pid()",
        ["bigint"],
        [run_id],
    )
    return bool(found) and bool(
        db.query(
            "SELECT FROM pg_stat_activity AS a JOIN pg_roles AS r ON r.oid = a.usesysid WHERE r.rolsuper"
            " AND a.datname = current_database() AND a.pid IN"
            f" (SELECT l.pid FROM {_LOCKS} AND l.objid::bigint = $3 AND l.pid = $4)",
            ["bigint", "bigint", "bigint", "integer"],
            [_lock_class(run_id), _LOCK_MARK, found[0]["lock"], found[0]["pid"]],
        )
    )


def _try_lock(db: Database, run_id: int) -> int | None:
    """Try to take an advisory lock for a run; return the second number of its key, or None if it is taken.

    This number is partly random: any role could take a lock whose key it knows, and so keep others from it.
    """
    lock = _LOCK_MARK << 16 | secrets.randbits(16)
    held = db.query(
        "SELECT pg_catalog.pg_try_advisory_lock($1, $2) AS held",
        ["integer", "integer"],
        [_lock_class(run_id), lock],
    )[0]["held"]
    return lock if held else None


def _lock_class(run_id: int) -> int:
    return run_id & 0x7FFFFFFF


@as_owner
def holds(db: Database, run_id: int) -> bool:
    """Return whether this session is still marked as the run's control session."""
    rows = db.query(
        "SELECT FROM cerebro._driver WHERE run_id = $1 AND pid = pg_backend_pid()", ["bigint"], [run_id]
    )
    return bool(rows)


@as_owner
def let_go(db: Database, run_id: int) -> None:
    """Release the run's lock, so that this session is no longer the run's control session.

    Call this only when the end of the run is committed."""
    # For queries that began before that and miss the lock: the view of runs.
    db.query("SELECT pg_catalog.setval('cerebro._last_ending', pg_catalog.txid_current())")
    db.query(
        "SELECT pg_catalog.pg_advisory_unlock(l.classid::bigint::integer, l.objid::bigint::integer)"
        f" FROM {_LOCKS} AND l.pid = pg_backend_pid()",
        ["bigint", "bigint"],
        [_lock_class(run_id), _LOCK_MARK],
    )


@as_owner
def claim(db: Database, run_id: int) -> bool:
    """Keep every session from becoming the run's control session until this transaction ends; return True.

    Return False if another session is the control session, or if a segment session of the run still works
    after a few seconds: it goes on until it notices that its caller has died.
    """
    for look in range(_LOOKS):
        if look:
            session.sleep(db, _BETWEEN_LOOKS_SECONDS)
            db.query("SELECT pg_catalog.pg_stat_clear_snapshot()")
        if not _still_writes(db, run_id) and _is_free(db, run_id):
            return True
        if held_elsewhere(db, run_id):
            return False
    return False


def _still_writes(db: Database, run_id: int) -> bool:
    # Any session may call itself anything: only those that were the run's are asked whether they still are.
    sessions = db.query("SELECT sessions FROM cerebro._driver WHERE run_id = $1", ["bigint"], [run_id])
    return bool(
        db.query(
            "SELECT FROM pg_stat_activity AS a JOIN pg_roles AS r ON r.oid = a.usesysid WHERE r.rolsuper"
            " AND a.datname = current_database() AND a.application_name LIKE 'cerebro % run=' || $1 || ' %'"
            " AND a.pid = ANY ($2)"
            # On Greenplum it keeps the name of what it has done until it is given another.
            " AND a.state IS DISTINCT FROM 'idle'",
            ["text", "integer[]"],
            [str(run_id), sessions[0]["sessions"] if sessions else []],
        )
    )


@as_owner
def end_sessions(db: Database, run_id: int) -> None:
    """End the control session of a run and the sessions that train for it. A driving session that is the
    caller's own is only cancelled."""
    found = db.query(
        f"SELECT pid, driver, sessions, {as_text('at', 'timestamptz')} AS at"
        " FROM cerebro._driver WHERE run_id = $1",
        ["bigint"],
        [run_id],
    )
    for row in found:
        own = [row["pid"], *row["sessions"]]
        numbers = _session_numbers(db, own, row["at"])
        if row["driver"] not in own:
            db.query(
                "SELECT pg_catalog.pg_cancel_backend(a.pid) FROM pg_stat_activity AS a"
                f" WHERE a.pid = $1 AND {_STILL_THERE}",
                ["integer", "text"],
                [row["driver"], row["at"]],
            )
        db.query(
            f"SELECT pg_catalog.pg_terminate_backend(a.pid) FROM {_OWN_SESSIONS}",
            ["integer[]", "text"],
            [own, row["at"]],
        )
        _end_on_segments(db, numbers)


def _session_numbers(db: Database, pids: Sequence[int], at: str) -> list[int]:
    """Return Greenplum's numbers of the sessions `pids` that began before `at`; empty on other servers.

    By these numbers the sessions' processes on segments are found.
    """
    if not is_greenplum(db):
        return []
    rows = db.query(f"SELECT a.sess_id FROM {_OWN_SESSIONS}", ["integer[]", "text"], [list(pids), at])
    return [row["sess_id"] for row in rows]


def _end_on_segments(db: Database, numbers: Sequence[int]) -> None:
    """End the processes on segments that may still work for the sessions with these numbers, which have
    ended."""
    if numbers:
        db.query(
            # No aggregate: it would have the function called here.
            "SELECT CASE WHEN (s.a).sess_id = ANY ($1) THEN pg_catalog.pg_terminate_backend((s.a).pid) END"
            " FROM (SELECT pg_stat_get_activity(NULL) AS a FROM gp_dist_random('pg_catalog.gp_id')) AS s",
            ["integer[]"],
            [list(numbers)],
        )


@as_owner
def find_maker(db: Database, model_table: str, run_id: int | None, role: str) -> Row | None:
    """Return a run under way, other than `run_id`, that will create the table `model_table`, and whether the
    role may see this run; None if there is no such run.

    Runs with the topology `inline` are left out: such a run has already created the table, in its caller's
    transaction.
    """
    # At first without the view, which on Citus would make this transaction one of all workers.
    begun = db.query(
        "SELECT r.run_id FROM cerebro._run AS r WHERE r.model_table = $1 AND r.topology <> 'inline'"
        " AND r.run_id IS DISTINCT FROM $2 AND 'running' = (SELECT e.event FROM cerebro._run_event AS e"
        " WHERE e.run_id = r.run_id ORDER BY e.at DESC LIMIT 1)",
        ["text", "bigint"],
        [model_table, run_id],
    )
    if not begun:
        return None
    db.query("SELECT pg_catalog.pg_stat_clear_snapshot()")
    rows = db.query(
        "SELECT run_id, pg_catalog.pg_has_role($2, owner, 'USAGE') AS owned FROM cerebro.runs"
        " WHERE run_id = ANY ($1) AND status IN ('running', 'paused') LIMIT 1",
        ["bigint[]", "name"],
        [[row["run_id"] for row in begun], role],
    )
    return rows[0] if rows else None
