"""SQL about the session itself: its settings and name, where segment sessions log in, and how many more may
be opened."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from cerebro_plpy.database import Database, as_owner, kept_for_call
from cerebro_plpy.store import citus
from cerebro_plpy.store.dialect import HAS_SEGMENTS, session_settings

_SERVER = ctypes.PyDLL(None)
ENGINES = ("tensorflow", "jax", "torch")
# The search_path of the extension's own statements.
OWN_PATH = "pg_catalog, pg_temp"
# The name of a segment session that has nothing to do.
IDLE = "cerebro idle"
# The beginnings of statements without parameters that are repeated often.
REPEATED = ("SELECT", "SET SESSION", "RESET")
# About a table of our own, of which the server says nothing when it is done.
COMMENT = "COMMENT "
# Sent to another session: %s are parameters in the form of the driver that sends it.
COMMAND = "SELECT cerebro._segment(%s, %s)"
# On Greenplum some commands are carried out statement by statement (cluster/procedure.py).
STEPWISE_COMMAND = "CALL cerebro._command(%s, %s)"
# Nothing may be sent to the caller's side unasked, and no setting of a role may end a visit. Some errors are
# known by their words, which are to be English.
SETTINGS = {
    "client_min_messages": "error",
    "lc_messages": "C",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "30s",
    "default_transaction_isolation": "read\\ committed",
    "default_transaction_read_only": "off",
    "search_path": OWN_PATH.replace(" ", ""),
    "quote_all_identifiers": "off",
    "jit": "off",
}
# A visit need not wait for the disk: after a crash of the machine the run resumes from the last visit that
# is there, to the same bits. What the control session and the caller commit later takes earlier visits along.
VISIT_SETTINGS = {"synchronous_commit": "off"}


@dataclass(frozen=True)
class NamesIn:
    """The settings search_path and quote_all_identifiers, by which a session looks up and writes names."""

    path: str
    quoting: str


def names_in(db: Database) -> NamesIn:
    """Return the session's name settings. The query has qualified names, since any search_path may be set."""
    row = db.query(
        "SELECT pg_catalog.current_setting('search_path') AS path,"
        " pg_catalog.current_setting('quote_all_identifiers') AS quoting"
    )[0]
    return NamesIn(**row)


def take_names(db: Database, names: NamesIn) -> None:
    """Set the name settings for the rest of the transaction, or until they are set again."""
    db.query(
        "SELECT pg_catalog.set_config('search_path', $1, true),"
        " pg_catalog.set_config('quote_all_identifiers', $2, true)",
        # In full, since these are looked up in the path that is there before.
        ["pg_catalog.text", "pg_catalog.text"],
        [names.path, names.quoting],
    )


OWN_NAMES = NamesIn(OWN_PATH, "off")


@contextmanager
def own_names(db: Database) -> Iterator[NamesIn]:
    """Set the extension's own name settings during the block, and yield the caller's.

    A SET clause of the SQL function would hide the caller's settings. If an error leaves the block, the
    rollback that follows restores them.
    """
    theirs = names_in(db)
    take_names(db, OWN_NAMES)
    yield theirs
    take_names(db, theirs)


def seconds(db: Database, interval: str) -> float:
    return db.query("SELECT pg_catalog.date_part('epoch', $1) AS s", ["interval"], [interval])[0]["s"]


def time_zone(db: Database) -> str:
    """Return the session's time zone."""
    return db.query("SELECT pg_catalog.current_setting('TimeZone') AS zone")[0]["zone"]


def sleep(db: Database, seconds: float) -> None:
    db.query("SELECT pg_catalog.pg_sleep($1)", ["float8"], [seconds])


# The setting that names the folder of compiled programs; empty, there is none.
CACHE_FOLDER = "cache_folder"


@kept_for_call
@as_owner
def settings(db: Database) -> Mapping[str, str]:
    """Return the administrator's settings by name, read with the owner's rights: callers may not read the
    table."""
    return {row["name"]: row["value"] for row in db.query("SELECT name, value FROM cerebro.settings")}


def setting(db: Database, name: str) -> str | None:
    return settings(db).get(name)


def usual_segments(db: Database) -> int:
    """Return the default number of segments of a packed table: the setting `segments`, or else as many as the
    server can have at work at once."""
    return int(setting(db, "segments") or 0) or db.server.places_for_work()


def server_versions(db: Database) -> Mapping[str, str]:
    """Return version numbers by product: PostgreSQL and, on a server with segments, Greenplum or its fork."""
    row = db.query(
        "SELECT pg_catalog.current_setting('server_version') AS postgresql,"
        f" CASE WHEN {HAS_SEGMENTS} THEN pg_catalog.version() END AS banner"
    )[0]
    return {**read_banner(row["banner"] or ""), "PostgreSQL": row["postgresql"].split()[0]}


# The product stands in parentheses behind PostgreSQL's version; its own is in them, or just behind.
_PRODUCT = re.compile(r"PostgreSQL \S+ \(([A-Z][A-Za-z]*(?: [A-Z][A-Za-z]*)*)\)? (\d[^\s)]*)")


def read_banner(banner: str) -> Mapping[str, str]:
    """Return the name and version of the product that a text of version() names in parentheses; empty if
    there is none."""
    found = _PRODUCT.match(banner)
    return {} if found is None else {found[1].removesuffix(" Database"): found[2]}


def version(db: Database) -> str:
    return db.query("SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'cerebro'")[0][
        "extversion"
    ]


def _counter(name: str, kind: Any, *arguments: Any) -> Any:
    counter = getattr(_SERVER, name)
    counter.restype, counter.argtypes = kind, arguments
    return counter


Moment: TypeAlias = tuple[int, int, int, int, int]


@functools.lru_cache(maxsize=1)
def _counters() -> tuple[Any, ...]:
    """Return the server's C functions that `statement` calls; only a server process has them."""
    return (
        _counter("GetCurrentStatementStartTimestamp", ctypes.c_int64),
        _counter("GetCurrentCommandId", ctypes.c_uint32, ctypes.c_bool),
        _counter("GetUserId", ctypes.c_uint32),
        _counter("GetCurrentTransactionStartTimestamp", ctypes.c_int64),
        _counter("GetCurrentSubTransactionId", ctypes.c_uint32),
    )


def statement() -> Moment:
    """Return numbers that change when earlier look-ups may be out of date.

    These are the current statement's start time, the transaction's command counter, the current user's oid,
    the transaction's start time and the subtransaction. A procedure that commits has the same statement
    before and after, and a block that is rolled back the same commands.
    """
    began, command, user, transaction, part = _counters()
    return began(), command(False), user(), transaction(), part()


@functools.lru_cache(maxsize=1)
def _path() -> ctypes.c_char_p:
    return ctypes.c_char_p.in_dll(_SERVER, "namespace_search_path")


def path() -> bytes | None:
    """Return the current search_path as it was set, read from the server's memory without a statement."""
    return _path().value


def current_user(db: Database) -> str:
    return db.query("SELECT current_user::text AS role")[0]["role"]


@dataclass(frozen=True)
class LoginTarget:
    """The server and the database that a segment session logs in to, and the user; the setting `connection`
    overrides them."""

    connection: str | None
    host: str
    port: str
    dbname: str
    user: str
    server_version: int
    # The settings that its sessions need on this kind of server.
    settings: Mapping[str, str]
    # Beside the place: by which settings the nodes of a cluster reach each other.
    conninfo: str = ""
    # On Citus, where the sessions of segments log in, in the order of the workers.
    workers: tuple[LoginTarget, ...] = ()

    def of_segment(self, number: int) -> LoginTarget:
        """Return the login target of a segment's session: on Citus, that of the segment's worker."""
        return self.workers[number % len(self.workers)] if self.workers else self


@as_owner
def target(db: Database) -> LoginTarget:
    """Return how to open a session on this server, looked up with the rights of the extension's owner."""
    row = db.query(
        "SELECT (SELECT value FROM cerebro.settings WHERE name = 'connection') AS connection,"
        " pg_catalog.current_setting('unix_socket_directories') AS sockets,"
        " pg_catalog.current_setting('port') AS port,"
        " pg_catalog.current_database()::text AS dbname,"
        " pg_catalog.pg_get_userbyid(extowner)::text AS owner,"
        " pg_catalog.current_setting('server_version_num')::int AS server_version"
        " FROM pg_catalog.pg_extension WHERE extname = 'cerebro'"
    )[0]
    here = LoginTarget(
        connection=row["connection"],
        host=first_socket(row["sockets"]),
        port=row["port"],
        dbname=row["dbname"],
        user=row["owner"],
        server_version=row["server_version"],
        settings=session_settings(db),
    )
    if not citus.is_distributed(db):
        return here
    # What a session makes there is for itself alone. Its visits wait for the disk: the run goes on if the
    # worker crashes, and needs them.
    settings = {
        **here.settings,
        "citus.enable_ddl_propagation": "off",
        "synchronous_commit": "on",
    }
    there = replace(here, connection=None, conninfo=citus.conninfo(db), settings=settings)
    workers = [replace(there, host=node.host, port=str(node.port)) for node in citus.workers(db)]
    return replace(here, workers=tuple(workers))


def first_socket(folders: str) -> str:
    """Return the first folder in the setting unix_socket_directories, or localhost if it is empty."""
    return folders.split(",")[0].strip() or "localhost"


def own_strong_locks(db: Database, oids: list[int]) -> bool:
    """Return whether this transaction may have changed the tables `oids`, their partitions or the table of
    registered functions, so that other sessions would wait for its end or not see the change.

    It may have changed a table if it holds a lock on the table that is stronger than those of reading.
    """
    return bool(
        db.query(
            "SELECT FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'relation'"
            " AND l.pid = pg_catalog.pg_backend_pid() AND l.granted"
            " AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'SIReadLock')"
            " AND (l.relation = ANY ($1) OR l.relation IN"
            "   (SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = ANY ($1))"
            "   OR l.relation = 'cerebro._function'::regclass) LIMIT 1",
            ["oid[]"],
            [oids],
        )
    )


def any_temporary(db: Database, oids: list[int]) -> bool:
    """Return whether some of these tables are temporary."""
    return bool(
        db.query(
            "SELECT FROM pg_catalog.pg_class WHERE oid = ANY ($1) AND relpersistence = 't' LIMIT 1",
            ["oid[]"],
            [oids],
        )
    )


def other_segment_sessions(db: Database, own_pids: list[int]) -> int:
    """Return how many segment sessions, other than those in `own_pids`, are on this server.

    Only sessions of superusers are counted: any role may give its session a name that begins with cerebro.
    The count is current, even if this transaction has counted before.
    """
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
    """How many more sessions may be opened for a role, with the size and the name of the limit that decides
    this."""

    free: int
    most: int
    bound: str


def room(db: Database, role: str) -> Room:
    """Return how many more sessions may be opened for a role within the limits of an ordinary user.

    Segment sessions log in as a superuser. So they could use the connections reserved for superusers, and
    exceed the limits of the database and of the role that they work for.
    """
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


@as_owner
def data_directory(db: Database) -> str:
    """Return the server's data directory, read with the owner's rights, since not every role may know it."""
    return db.query("SELECT pg_catalog.current_setting('data_directory') AS folder")[0]["folder"]


def host_facts(db: Database) -> dict[str, Any]:
    """Return the facts of this host: cores, GPUs, engines, and what is missing."""
    return json.loads(db.query("SELECT cerebro._host_facts() AS facts")[0]["facts"])


def writes_floats_in_full(db: Database) -> bool:
    """Return whether texts of floats have all their digits; a session may have switched that off."""
    asked = "SELECT pg_catalog.current_setting('extra_float_digits')::integer > 0 AS found"
    return db.query(asked)[0]["found"]


def isolation(db: Database) -> str:
    return db.query("SELECT pg_catalog.current_setting('transaction_isolation') AS level")[0]["level"]


@functools.cache
def default_backend() -> str:
    """Return the first engine in `ENGINES` that this server's Python has; not every Python has TensorFlow."""
    return (engines_here(*ENGINES) or ENGINES)[0]


def engines_here(*names: str) -> tuple[str, ...]:
    """Return the given engines that this server's Python has installed."""
    return tuple(name for name in names if importlib.util.find_spec(name) is not None)


def set_application_name(db: Database, name: str) -> None:
    """Show other sessions what this session is doing, as its application_name, until the transaction ends."""
    db.query("SELECT pg_catalog.set_config('application_name', $1, true)", ["text"], [name])


def show(name: str) -> None:
    """Show other sessions a name for this session, until it gets another name.

    The name is also lost at the end of a transaction that has set application_name. This function does not
    use that setting, which would be sent to every segment of a Greenplum cluster although none needs it.
    """
    _SERVER.pgstat_report_appname(name.encode())
