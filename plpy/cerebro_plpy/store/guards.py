"""SQL that changes the rights of a session: to those of the extension's owner or a caller, or to those inside
a guard."""

from __future__ import annotations

from collections.abc import Mapping

from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.store.names import quote

# In the context of an error that occurs inside a guard for one statement.
LOOK_GUARD = "_cerebro_look_"
AS_OWNER = "SELECT cerebro._as_owner()"
BECOME_OWNER = "RESET SESSION AUTHORIZATION"
# Until the guard's statement ends. From PostgreSQL 16 on no function can have this in its SET clause.
_READ_ONLY = "pg_catalog.set_config('transaction_read_only', 'on', true)"
_GUARD_BODY = 'import sys; sys.modules["cerebro_plpy.session"].run_pending()'
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


def become(role: str) -> str:
    return f"SET SESSION AUTHORIZATION {quote(role)}"


def make_guard(db: Database, role: str, writes: bool = False) -> str:
    """Return the statement that calls the guard of a role; the guard is created once in each session.

    The guard is a SECURITY DEFINER function that the role owns. Inside it the server refuses every change of
    role, so nothing behind a view or a policy of the role can become the extension's owner again. Since its
    owner may change it or lose it by REASSIGN OWNED, it is checked here before each use. In a guard that
    `writes`, a user's code may run only within another guard, in a transaction that only reads.
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
    """Return the argument for the statement `FIND_LOOK_GUARD`. That statement returns the oid of the role if
    this session has a guard from `make_look_guard` for the role, and nobody has changed the guard."""
    return {"role": role, "body": _LOOK_BODY}


def make_look_guard(db: Database, role: str) -> str:
    """Create the guard that runs one statement as the role, read-only and without Python, and return the
    role's oid."""
    rows = db.query("SELECT oid::text AS oid FROM pg_catalog.pg_roles WHERE rolname = $1", ["text"], [role])
    if not rows:
        raise _gone(role)
    name = f"pg_temp._cerebro_look_{rows[0]['oid']}(statement text)"
    _create_guard(
        db, name=name, returns="text LANGUAGE plpgsql", body=_LOOK_BODY, role=role, settings=_LOOK_SETTINGS
    )
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
    """Release the advisory locks that a user's code took in this session, since no rollback releases them.

    The extension's own locks are not affected: a session that reads as a user has none (see `drivers.hold`).
    """
    db.query("SELECT pg_catalog.pg_advisory_unlock_all()")
