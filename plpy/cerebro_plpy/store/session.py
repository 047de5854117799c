"""SQL about the session itself: its settings, its name, where segment sessions log in, what room is left."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

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
# Sent to another session, so its parameters are written as the driver wants them.
COMMAND = "SELECT cerebro._segment(%s, %s)"
# On Greenplum some are carried out statement by statement (cluster/procedure.py).
STEPWISE_COMMAND = "CALL cerebro._command(%s, %s)"
# Nothing may be sent to the caller's side unasked, and no setting of a role may end a visit.
SETTINGS = {
    "client_min_messages": "error",
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
    """The settings by which a session looks up names and writes them out."""

    path: str
    quoting: str


def names_in(db: Database) -> NamesIn:
    """Read the caller's settings. The query names its functions in full, since the path may lead anywhere."""
    row = db.query(
        "SELECT pg_catalog.current_setting('search_path') AS path,"
        " pg_catalog.current_setting('quote_all_identifiers') AS quoting"
    )[0]
    return NamesIn(**row)


def take_names(db: Database, names: NamesIn) -> None:
    """Use these settings for the rest of the transaction, or until others are taken."""
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
    """Have names mean the extension's own, and yield what they mean to the caller.

    A SET clause of the SQL function would hide the caller's. Whatever an error leaves of this is undone with
    the transaction, or the part of it, that the error ends.
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
    """Read an administrator's settings through the owner, since callers may not read the table."""
    return {row["name"]: row["value"] for row in db.query("SELECT name, value FROM cerebro.settings")}


def setting(db: Database, name: str) -> str | None:
    return settings(db).get(name)


def usual_segments(db: Database) -> int:
    """Return how many segments a packed table has by default: as many as there are places for work."""
    return int(setting(db, "segments") or 0) or db.server.places_for_work()


def server_versions(db: Database) -> Mapping[str, str]:
    """Return the versions of PostgreSQL and, if the server has segments, of Greenplum or its heir."""
    row = db.query(
        "SELECT pg_catalog.current_setting('server_version') AS postgresql,"
        f" CASE WHEN {HAS_SEGMENTS} THEN pg_catalog.version() END AS banner"
    )[0]
    return {**read_banner(row["banner"] or ""), "PostgreSQL": row["postgresql"].split()[0]}


# The product stands in parentheses behind PostgreSQL's version; its own is in them, or just behind.
_PRODUCT = re.compile(r"PostgreSQL \S+ \(([A-Z][A-Za-z]*(?: [A-Z][A-Za-z]*)*)\)? (\d[^\s)]*)")


def read_banner(banner: str) -> Mapping[str, str]:
    """Return the name and the version of the product that a cluster's version() names, if any."""
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


@functools.lru_cache(maxsize=1)
def _counters() -> tuple[Any, Any, Any]:
    """Return the server's own counters, which only a server's process has."""
    return (
        _counter("GetCurrentStatementStartTimestamp", ctypes.c_int64),
        _counter("GetCurrentCommandId", ctypes.c_uint32, ctypes.c_bool),
        _counter("GetUserId", ctypes.c_uint32),
    )


def statement() -> tuple[int, int, int]:
    """Return the start of the client's statement, the count of this session's changes in it, and the user."""
    began, command, user = _counters()
    return began(), command(False), user()


@functools.lru_cache(maxsize=1)
def _path() -> ctypes.c_char_p:
    return ctypes.c_char_p.in_dll(_SERVER, "namespace_search_path")


def path() -> bytes | None:
    """Return the search_path of this moment, as it is set, without a statement."""
    return _path().value


def current_user(db: Database) -> str:
    return db.query("SELECT current_user::text AS role")[0]["role"]


@dataclass(frozen=True)
class LoginTarget:
    """The place where a segment session logs in, and the user; `connection` overrides the rest."""

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
        """Return the place where the session of a segment logs in."""
        return self.workers[number % len(self.workers)] if self.workers else self


@as_owner
def target(db: Database) -> LoginTarget:
    """Look up, as the owner, how a session on this server is opened."""
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
    # What a session makes there is for itself alone.
    settings = {**here.settings, "citus.enable_ddl_propagation": "off"}
    there = replace(here, connection=None, conninfo=citus.conninfo(db), settings=settings)
    workers = [replace(there, host=node.host, port=str(node.port)) for node in citus.workers(db)]
    return replace(here, workers=tuple(workers))


def first_socket(folders: str) -> str:
    """Return the first of a server's socket folders, or localhost if it has none."""
    return folders.split(",")[0].strip() or "localhost"


def own_strong_locks(db: Database, oids: list[int]) -> bool:
    """Return whether this transaction has uncommitted changes that another session would wait for or miss.

    It holds strong locks on these tables or their partitions, or it has registered functions.
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
    """Return how many segment sessions other callers have on this server.

    Any role may call itself cerebro, but only a superuser's session can be one. What this transaction has
    seen of them before may be out of date.
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
    """The number of sessions that may still be opened for a role, and the limit that applies."""

    free: int
    most: int
    bound: str


def room(db: Database, role: str) -> Room:
    """Return the connections left to ordinary users.

    A superuser's sessions could take those kept for superusers, and are not bound by the limits of the
    database or of the role that they work for.
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
    """Return the server's data directory, which not every role may know."""
    return db.query("SELECT pg_catalog.current_setting('data_directory') AS folder")[0]["folder"]


def host_facts(db: Database) -> dict[str, Any]:
    """Return the facts of this host: cores, GPUs, engines, and what is missing."""
    return json.loads(db.query("SELECT cerebro._host_facts() AS facts")[0]["facts"])


def isolation(db: Database) -> str:
    return db.query("SELECT pg_catalog.current_setting('transaction_isolation') AS level")[0]["level"]


@functools.cache
def default_backend() -> str:
    """Return the first engine that this server's Python has; not every one has TensorFlow."""
    return (engines_here(*ENGINES) or ENGINES)[0]


def engines_here(*names: str) -> tuple[str, ...]:
    """Return those of the engines that this server's Python has."""
    return tuple(name for name in names if importlib.util.find_spec(name) is not None)


def set_application_name(db: Database, name: str) -> None:
    """Tell other sessions what this one is doing until this transaction ends."""
    db.query("SELECT pg_catalog.set_config('application_name', $1, true)", ["text"], [name])


def show(name: str) -> None:
    """Name this session until it gets another name, or ends a transaction in which it got one.

    A setting would be sent to every segment of a Greenplum cluster, and none needs it.
    """
    _SERVER.pgstat_report_appname(name.encode())
