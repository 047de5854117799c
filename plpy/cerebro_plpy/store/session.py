"""SQL about the session itself: whose rights it has, where segment sessions log in, what it may wait for."""

from __future__ import annotations

import ctypes
import json
import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import QUERY_CANCELED, WRONG_STATE, CerebroError
from cerebro_plpy.store.dialect import is_greenplum

# What a segment session is called that has nothing to do.
IDLE = "cerebro idle"
_SHOWN = (("run", "run_id"), ("config", "mst_key"), ("epoch", "epoch"), ("segment", "segment"))

LOOK_SECONDS = 1800
# What the server calls the clock of statement_timeout, and the most seconds that a clock can be set to.
_STATEMENT_TIMEOUT = 3
_LONGEST = 2_000_000
# Code that catches the cancel has so long to end; then the session is.
_GRACE_SECONDS = 5
_CLOCK_MONOTONIC = 1
# How the server calls advisory locks.
_USER_LOCKS = 2
# In what the server says of an error, where a look of the caller's is under way.
LOOK_GUARD = "_cerebro_look_"

AS_OWNER = "SELECT cerebro._as_owner()"
BECOME_OWNER = "RESET SESSION AUTHORIZATION"
TICK = "SELECT"
# What statements without parameters begin with that come again and again.
REPEATED = ("SELECT", "SET SESSION", "RESET")
# About a table of our own, of which the server says nothing when it is done.
COMMENT = "COMMENT "
# Sent to another session, so its parameters are written as the driver wants them.
COMMAND = "SELECT cerebro._segment(%s, %s)"
# On Greenplum these are carried out statement by statement (segment/relay.py).
ERRANDS = (
    "visit", "evaluate", "merge", "drop_states", "tell_epochs",
    "create_run", "hold_run", "resume_run", "end_run", "fail_config", "decide",
)  # fmt: skip
ERRAND = "CALL cerebro._errand(%s, %s)"
# Of these a segment's process leaves nothing to be written down for it.
STRAIGHT = ("visit", "evaluate")
# Nothing may be sent to the caller's side unasked, and no setting of a role may end a visit.
SETTINGS = {
    "client_min_messages": "error",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "30s",
    "default_transaction_isolation": "read\\ committed",
    "default_transaction_read_only": "off",
    "search_path": "pg_catalog,pg_temp",
    "jit": "off",
}
# A visit need not wait for the disk: after a crash of the machine the run resumes from the last visit that
# is there, to the same bits. What the control session and the caller commit later takes earlier visits along.
VISIT_SETTINGS = {"synchronous_commit": "off"}
# For the rest of its statement. From PostgreSQL 16 on no function can have it in its SET clause.
_READ_ONLY = "pg_catalog.set_config('transaction_read_only', 'on', true)"
_GUARD_BODY = 'GD["cerebro"].run_pending()'
_GUARD_PATH = "search_path=pg_catalog, pg_temp"
_LOOK_AT_GUARD = (
    "SELECT r.oid, EXISTS (SELECT FROM pg_catalog.pg_proc AS p"
    " JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang AND l.lanname = 'plpython3u'"
    " WHERE p.pronamespace = pg_catalog.pg_my_temp_schema() AND p.proname = $3 || r.oid"
    " AND p.pronargs = 0 AND p.proowner = r.oid AND p.prosecdef AND p.prosrc = $2"
    f" AND p.proconfig = ARRAY['{_GUARD_PATH}']) AS good"
    " FROM pg_catalog.pg_roles AS r WHERE r.rolname = $1"
)
_LOOK_BODY = "DECLARE found text; BEGIN EXECUTE statement INTO found; RETURN found; END"
_LOOK_SETTINGS = " SET transaction_read_only = on"
FIND_LOOK_GUARD = (
    "SELECT r.oid::text AS found FROM pg_catalog.pg_roles AS r JOIN pg_catalog.pg_proc AS p"
    " ON p.pronamespace = pg_catalog.pg_my_temp_schema() AND p.proname = '_cerebro_look_' || r.oid"
    " AND p.pronargs = 1 AND p.proowner = r.oid AND p.prosecdef AND p.prosrc = $1::json->>'body'"
    f" AND p.proconfig = ARRAY['{_GUARD_PATH}', 'transaction_read_only=on']"
    " JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang AND l.lanname = 'plpgsql'"
    " WHERE r.rolname = $1::json->>'role'"
)


def quote(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def become(role: str) -> str:
    return f"SET SESSION AUTHORIZATION {quote(role)}"


def make_guard(db: Database, role: str, writes: bool = False) -> str:
    """Create, once per session and role, the function that runs work as the role.

    It is SECURITY DEFINER and owned by the role: inside such a function the server refuses every change of
    role, so that nothing behind a view or a policy of the role's can become the extension's owner again.
    Its owner may change it, and REASSIGN OWNED give it away: so it is looked at before each use. Where it
    `writes`, nothing of a user's may run inside it but in another guard, in a transaction that only reads.
    """
    prefix = "_cerebro_driver_" if writes else "_cerebro_guard_"
    rows = db.query(_LOOK_AT_GUARD, ["text", "text", "text"], [role, _GUARD_BODY, prefix])
    if not rows:
        raise _gone(role)
    name = f"pg_temp.{prefix}{rows[0]['oid']}()"
    if not rows[0]["good"]:
        _create_guard(db, name, "void LANGUAGE plpython3u", _GUARD_BODY, role)
    return f"SELECT {name}" if writes else f"SELECT {_READ_ONLY}, {name}"


def look_guard(role: str) -> Mapping[str, str]:
    """What `FIND_LOOK_GUARD` is given; it finds the number of the role that the guard is for."""
    return {"role": role, "body": _LOOK_BODY}


def make_look_guard(db: Database, role: str) -> str:
    """The same guard for one statement that looks, which takes no Python; gives the role's number."""
    rows = db.query("SELECT oid::text AS oid FROM pg_catalog.pg_roles WHERE rolname = $1", ["text"], [role])
    if not rows:
        raise _gone(role)
    name = f"pg_temp._cerebro_look_{rows[0]['oid']}(statement text)"
    _create_guard(db, name, "text LANGUAGE plpgsql", _LOOK_BODY, role, _LOOK_SETTINGS)
    return rows[0]["oid"]


def look_through(oid: str) -> str:
    return f"SELECT pg_temp._cerebro_look_{int(oid)}($1)"


def _create_guard(db: Database, name: str, returns: str, body: str, role: str, settings: str = "") -> None:
    db.query(
        f"CREATE OR REPLACE FUNCTION {name} RETURNS {returns} SECURITY DEFINER"
        f" SET search_path = pg_catalog, pg_temp{settings} AS $${body}$$"
    )
    db.query(f"ALTER FUNCTION {name} OWNER TO {quote(role)}")


def _gone(role: str) -> CerebroError:
    return CerebroError(f'role "{role}" does not exist any more', sqlstate=WRONG_STATE)


def drop_locks(db: Database) -> None:
    """Give back advisory locks that code of a user's took in this session: no rollback does.

    Of the extension's own a session that reads as a user has none: see `drivers.hold`.
    """
    db.query("SELECT pg_catalog.pg_advisory_unlock_all()")


def tick(db: Database) -> None:
    """Let the server act on a cancel, if it has the mark of one; one that shows no mark is asked each time.

    A statement is expensive where it is sent to every segment, and a session that ends can run none.
    """
    if not has_mark() or _is_ending():
        return
    if is_greenplum(db):
        db.look_for_cancel()
    else:
        db.query(TICK)


_SERVER = ctypes.PyDLL(None)


def _find_mark() -> ctypes.c_int | None:
    """What the server sets when it has something to act on, a cancel for example."""
    try:
        return ctypes.c_int.in_dll(_SERVER, "InterruptPending")
    except ValueError:
        return None


def _find_switch(name: str) -> ctypes.c_bool | None:
    try:
        return ctypes.c_bool.in_dll(_SERVER, name)
    except ValueError:
        return None


_INTERRUPT = _find_mark()
_ENDING = _find_switch("proc_exit_inprogress")
# Where a server can interrupt Python, whether it does.
_INTERRUPTS_PYTHON = _find_switch("PLy_enter_python_intepreter")


def _is_ending() -> bool:
    """Whether this process is being ended, which calls what libraries want done then."""
    return _ENDING is not None and _ENDING.value


def has_mark() -> bool:
    """Whether the server may have something to act on."""
    return _INTERRUPT is None or bool(_INTERRUPT.value)


def must_look() -> bool:
    """Whether to look for a cancel before a statement begins: if it came then, it would tear Python down."""
    return _INTERRUPTS_PYTHON is not None and has_mark()


def let_cancels_wait() -> None:
    """Have cancels wait until we look for them, at places where we can put things in order.

    Greenplum would let them interrupt Python wherever it is, perhaps twice. It sets this anew with each call
    of a function and with each statement.
    """
    if _INTERRUPTS_PYTHON is not None:
        _INTERRUPTS_PYTHON.value = False


def seconds(db: Database, interval: str) -> float:
    return db.query("SELECT pg_catalog.date_part('epoch', $1) AS s", ["interval"], [interval])[0]["s"]


def sleep(db: Database, seconds: float) -> None:
    db.query("SELECT pg_catalog.pg_sleep($1)", ["float8"], [seconds])


def settings(db: Database, *names: str) -> dict[str, str]:
    """Read an administrator's settings. Callers may not read the table, so this goes through the owner."""
    statement = "SELECT name, value FROM cerebro.settings WHERE name = ANY ($1)"
    rows = db.as_owner(lambda: db.query(statement, ["text[]"], [list(names)]))
    return {row["name"]: row["value"] for row in rows}


def setting(db: Database, name: str) -> str | None:
    return settings(db, name).get(name)


def server_versions(db: Database) -> Mapping[str, str]:
    """What the server is, and what it is made of."""
    row = db.query(
        "SELECT pg_catalog.current_setting('server_version') AS postgresql,"
        " pg_catalog.substring(pg_catalog.version(), 'Greenplum Database ([^ )]+)') AS greenplum"
    )[0]
    made = {"Greenplum": row["greenplum"]} if row["greenplum"] else {}
    return {**made, "PostgreSQL": row["postgresql"].split()[0]}


def version(db: Database) -> str:
    return db.query("SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'cerebro'")[0][
        "extversion"
    ]


def current_user(db: Database) -> str:
    return db.query("SELECT current_user::text AS role")[0]["role"]


@dataclass(frozen=True)
class Target:
    """Where and as whom a segment session logs in; `connection` overrides the rest."""

    connection: str | None
    host: str
    port: str
    dbname: str
    user: str
    server_version: int
    is_greenplum: bool


def target(db: Database) -> Target:
    """Look up, as the owner, how a session on this server is opened."""
    row = db.as_owner(
        lambda: db.query(
            "SELECT (SELECT value FROM cerebro.settings WHERE name = 'connection') AS connection,"
            " pg_catalog.current_setting('unix_socket_directories') AS sockets,"
            " pg_catalog.current_setting('port') AS port,"
            " pg_catalog.current_database()::text AS dbname,"
            " pg_catalog.pg_get_userbyid(extowner)::text AS owner,"
            " pg_catalog.current_setting('server_version_num')::int AS server_version"
            " FROM pg_catalog.pg_extension WHERE extname = 'cerebro'"
        )
    )[0]
    return Target(
        row["connection"], first_socket(row["sockets"]), row["port"], row["dbname"], row["owner"],
        row["server_version"], is_greenplum(db),
    )  # fmt: skip


def first_socket(folders: str) -> str:
    """Where one logs in on a server's own host, of its setting's folders."""
    return folders.split(",")[0].strip() or "localhost"


def own_strong_locks(db: Database, oids: list[int]) -> bool:
    """Whether this transaction holds locks on these tables or their partitions that would block or hide
    them from another session, or has registered functions: it has not committed what it made or changed."""
    return bool(
        db.query(
            "SELECT FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'relation'"
            " AND l.pid = pg_catalog.pg_backend_pid() AND l.granted"
            " AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')"
            " AND (l.relation = ANY ($1) OR l.relation IN"
            "   (SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = ANY ($1))"
            "   OR l.relation = 'cerebro._function'::regclass) LIMIT 1",
            ["oid[]"],
            [oids],
        )
    )


def any_temporary(db: Database, oids: list[int]) -> bool:
    """Whether some of these tables are of this session alone."""
    return bool(
        db.query(
            "SELECT FROM pg_catalog.pg_class WHERE oid = ANY ($1) AND relpersistence = 't' LIMIT 1",
            ["oid[]"],
            [oids],
        )
    )


def other_segment_sessions(db: Database, own_pids: list[int]) -> int:
    """How many segment sessions other callers have on this server. Any role may call itself cerebro; only
    a superuser's session can be one. What this transaction has seen of them before may be out of date."""
    db.query("SELECT pg_stat_clear_snapshot()")
    return db.query(
        "SELECT count(*) AS number FROM pg_stat_activity AS a JOIN pg_roles AS r ON r.oid = a.usesysid"
        " WHERE r.rolsuper AND a.application_name LIKE 'cerebro%' AND a.pid <> ALL ($1)"
        " AND a.pid <> pg_backend_pid()",
        ["integer[]"],
        [own_pids],
    )[0]["number"]


@dataclass(frozen=True)
class Room:
    """How many more sessions may be opened for a role, and what bounds them."""

    free: int
    most: int
    bound: str


def room(db: Database, role: str) -> Room:
    """What is left to ordinary users: sessions of a superuser's could take what is kept for superusers, and
    are not bound by the limits of the role that they work for and of the database."""
    db.query("SELECT pg_stat_clear_snapshot()")
    rows = db.query(
        "SELECT b.bound, b.most, b.most - b.used AS free FROM pg_roles AS r, pg_database AS d,"
        " (SELECT count(*) AS everywhere, count(*) FILTER (WHERE datname = current_database()) AS here,"
        "  count(*) FILTER (WHERE usename = $1) AS own"
        "  FROM pg_stat_activity WHERE backend_type = 'client backend') AS u,"
        " LATERAL (VALUES ('max_connections of the server, less those kept for superusers',"
        "   current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
        "   - COALESCE(current_setting('reserved_connections', TRUE), '0')::int, u.everywhere),"
        "  ('the connection limit of the database', d.datconnlimit, u.here),"
        "  ('the connection limit of the role', r.rolconnlimit, u.own)) AS b (bound, most, used)"
        " WHERE r.rolname = $1 AND d.datname = current_database() AND b.most >= 0 ORDER BY free LIMIT 1",
        ["text"],
        [role],
    )
    return Room(rows[0]["free"], rows[0]["most"], rows[0]["bound"])


def look_seconds(db: Database) -> int:
    """How long code behind a table may take to let a run of the caller's read it."""
    fixed = int(setting(db, "look_seconds") or LOOK_SECONDS)
    own = seconds(db, db.query("SELECT pg_catalog.current_setting('statement_timeout') AS t")[0]["t"])
    # 0 is no limit, of either.
    return min((limit for limit in (fixed, math.ceil(own)) if limit), default=0)


def begin_limit(limit: int) -> None:
    """Have the server cancel what this session does when it takes longer; 0 is no limit.

    Segment sessions have no statement_timeout of their own, since it would end visits: its clock is free.
    """
    if limit:
        _SERVER.enable_timeout_after(_STATEMENT_TIMEOUT, min(limit, _LONGEST) * 1000)
        _end_session_in(limit + _GRACE_SECONDS)


def end_limit() -> None:
    _SERVER.disable_timeout(_STATEMENT_TIMEOUT, False)
    _end_session_in(0)


def begin_bound(limit: int) -> None:
    """Greenplum: have this process of a segment's end when code of a user's goes on after its limit.

    The coordinator cancels it in time; but SQL can catch that here too, and when the coordinator's session
    ends, a process that is busy does not notice. 0 is no limit.
    """
    _bounds[:] = [limit]
    if limit:
        _end_session_in(limit + _GRACE_SECONDS)


def end_bound() -> None:
    """What this process is told next is no code of a user's."""
    if _bounds:
        _bounds.clear()
        _end_session_in(0)
        drop_own_locks()


def drop_own_locks() -> None:
    """Give back this process' advisory locks by no statement, of which all segments would have to be told."""
    _SERVER.LockReleaseSession(_USER_LOCKS)


class _Event(ctypes.Structure):
    """What Linux calls struct sigevent: which signal a clock sends."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_byte * 64),
    )


_clock: list[ctypes.c_void_p] = []
# How long code of a user's may take that a segment's process has been told of.
_bounds: list[int] = []


def _end_session_in(seconds: int) -> None:
    """Have the kernel end this session then, as pg_terminate_backend does; 0 takes that back.

    SQL can catch a cancel, as often as it comes, but not this. Without such a clock the cancel is all.
    """
    if not _clock:
        event, clock = _Event(signal=signal.SIGTERM), ctypes.c_void_p()
        if not hasattr(_SERVER, "timer_create") or _SERVER.timer_create(
            _CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(clock)
        ):
            return
        _clock.append(clock)
    # Every so often, which is never, and for the first time.
    _SERVER.timer_settime(_clock[0], 0, (ctypes.c_long * 4)(0, 0, seconds, 0), None)


def took_too_long(limit: int) -> CerebroError:
    return CerebroError(
        f"code behind a table that was read took longer than {limit} seconds",
        detail="It stands in a policy, a view or a function that they call.",
        hint="An administrator may raise the setting look_seconds.",
        sqlstate=QUERY_CANCELED,
    )


def data_directory(db: Database) -> str:
    """Where the server keeps its data; not every role may know it."""
    return db.as_owner(lambda: db.query("SELECT pg_catalog.current_setting('data_directory') AS folder"))[0][
        "folder"
    ]


def host_facts(db: Database) -> dict[str, Any]:
    """What this host has: cores, GPUs, engines, and what is missing."""
    return json.loads(db.query("SELECT cerebro._host_facts() AS facts")[0]["facts"])


def isolation(db: Database) -> str:
    return db.query("SELECT pg_catalog.current_setting('transaction_isolation') AS level")[0]["level"]


def read_only(db: Database) -> bool:
    return db.query("SELECT pg_catalog.current_setting('transaction_read_only') AS mode")[0]["mode"] == "on"


def set_application_name(db: Database, command: str, request: Mapping[str, object]) -> None:
    """Tell other sessions what this one is doing until this transaction ends; the progress view reads it."""
    db.query(
        "SELECT pg_catalog.set_config('application_name', $1, true)", ["text"], [shown(command, request)]
    )


def show(name: str) -> None:
    """The same until the session is given another name or ends a transaction in which it had one.

    A setting would be sent to every segment of a Greenplum cluster, and none needs it.
    """
    _SERVER.pgstat_report_appname(name.encode())


def shown(command: str, request: Mapping[str, object]) -> str:
    words = [f"{name}={request[key]}" for name, key in _SHOWN if request.get(key) is not None]
    return " ".join(["cerebro", command, *words])
