"""SQL on registered functions, which are stored with the owner's rights, and on the functions that a call may
name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from cerebro_plpy.database import Database, Row, as_owner
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, CerebroError
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.params import functions_in, parse_compile
from cerebro_plpy.madlib.registered import LAYER, Function
from cerebro_plpy.store import session

EVERYBODY = "public"
# A version counts until the function is unregistered: then a row without source stands behind it.
_LIVING = (
    "f.source IS NOT NULL AND NOT EXISTS (SELECT FROM cerebro._function AS x"
    " WHERE x.name = f.name AND x.version > f.version AND x.source IS NULL)"
)
_STORED = "SELECT DISTINCT f.name, f.kind, f.digest, f.source, f.higher_is_better FROM cerebro._function AS f"


def check_superuser(db: Database, what: str) -> None:
    """Raise an error unless both the current role and the calling role are superusers.

    The two roles differ inside a SECURITY DEFINER function that a superuser owns. A role that was set by SET
    ROLE counts as the calling role like one that has logged in, since only its members can set it.
    """
    row = db.query(
        "SELECT pg_catalog.bool_and(r.rolsuper) AS both, current_user::text AS role FROM pg_catalog.pg_roles"
        " AS r WHERE r.rolname = current_user OR r.rolname = CASE pg_catalog.current_setting('role')"
        " WHEN 'none' THEN session_user ELSE pg_catalog.current_setting('role') END"
    )[0]
    if not row["both"]:
        raise CerebroError(
            f"only a superuser may {what}",
            detail="Its source runs in sessions of the extension's owner, who is a superuser.",
            hint="Ask a superuser to register it with cerebro.register_function and to grant it with"
            " cerebro.grant_function.",
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )


@as_owner
def living(db: Database, role: str) -> list[Function]:
    """Return all versions of functions that are still registered, the newest version of each name first.

    Each says whether the role may use it.
    """
    rows = db.query(
        "SELECT f.name, f.kind, f.digest, f.higher_is_better,"
        " EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = $1 AND r.rolsuper)"
        " OR EXISTS (SELECT FROM cerebro._function_grant AS g WHERE g.name = f.name"
        "   AND (g.role = 0::oid OR pg_catalog.pg_has_role($1::name, g.role, 'USAGE'))) AS usable"
        f" FROM cerebro._function AS f WHERE {_LIVING} ORDER BY f.name, f.version DESC",
        ["text"],
        [role],
    )
    return [Function(**row) for row in rows]


@as_owner
def sources(db: Database, digests: Iterable[str]) -> list[Row]:
    return db.query(f"{_STORED} WHERE f.digest = ANY ($1)", ["text[]"], [sorted(digests)])


@as_owner
def of_run(db: Database, run_id: int) -> list[Row]:
    """Return the functions that a run uses, with their sources."""
    return db.query(
        f"{_STORED} JOIN cerebro._run_function AS r USING (digest) WHERE r.run_id = $1"
        " AND f.source IS NOT NULL",
        ["bigint"],
        [run_id],
    )


@as_owner
def digests_of_run(db: Database, run_id: int, role: str) -> list[str]:
    """Return the digests of the functions that a run uses; empty unless the role owns the run or belongs to
    its owner."""
    rows = db.query(
        "SELECT f.digest FROM cerebro._run_function AS f JOIN cerebro._run AS r USING (run_id)"
        " WHERE f.run_id = $1 AND pg_catalog.pg_has_role($2::name, r.owner, 'USAGE')",
        ["bigint", "text"],
        [run_id, role],
    )
    return [row["digest"] for row in rows]


@as_owner
def add_to_run(db: Database, run_id: int, digests: Iterable[str]) -> None:
    db.query(
        "INSERT INTO cerebro._run_function (run_id, digest)"
        " SELECT $1, d FROM pg_catalog.unnest($2) AS d ON CONFLICT DO NOTHING",
        ["bigint", "text[]"],
        [run_id, sorted(digests)],
    )


@as_owner
def newest(db: Database, name: str) -> Row | None:
    """Return the row of a function's newest version, or None if the name was never registered.

    No other session can add a version until this transaction ends.
    """
    db.query("LOCK TABLE cerebro._function IN SHARE ROW EXCLUSIVE MODE")
    rows = db.query(
        "SELECT version, kind, digest, description, source IS NOT NULL AS registered FROM cerebro._function"
        " WHERE name = $1 ORDER BY version DESC LIMIT 1",
        ["text"],
        [name],
    )
    return rows[0] if rows else None


@as_owner
def add(db: Database, role: str, **row: Any) -> None:
    """Store a version of a function; a version without source unregisters all earlier ones."""
    names = ["registered_by", *row]
    types = {"version": "integer", "higher_is_better": "boolean"}
    db.query(
        f"INSERT INTO cerebro._function ({', '.join(names)})"
        f" VALUES ({', '.join(f'${number}' for number in range(1, len(names) + 1))})",
        [types.get(name, "text") for name in names],
        [role, *row.values()],
    )


def find_role(db: Database, role: str) -> int | None:
    """Return the oid of a role; 0 for the name `public`, which means everybody; None if there is no such
    role."""
    rows = db.query("SELECT oid FROM pg_catalog.pg_roles WHERE rolname = $1", ["text"], [role])
    if rows:
        return rows[0]["oid"]
    return 0 if role.lower() == EVERYBODY else None


@as_owner
def grant(db: Database, name: str, role: int, granted_by: str) -> None:
    db.query(
        "INSERT INTO cerebro._function_grant (name, role, granted_by) VALUES ($1, $2, $3)"
        " ON CONFLICT DO NOTHING",
        ["text", "oid", "text"],
        [name, role, granted_by],
    )


@as_owner
def revoke(db: Database, name: str, role: int | None = None) -> bool:
    """Revoke a role's right to a function, or all rights to it if `role` is None; return False if there was
    none."""
    gone = db.query(
        "DELETE FROM cerebro._function_grant WHERE name = $1 AND ($2 IS NULL OR role = $2) RETURNING name",
        ["text", "oid"],
        [name, role],
    )
    return bool(gone)


def begin(db: Database, run_id: int | None = None) -> None:
    """Load the registered functions for this call, each with whether the caller may use it.

    A name alone means the first function that has it. So the versions that the run `run_id` uses come first.
    """
    role = session.current_user(db)
    known = living(db, role)
    before = [] if run_id is None else digests_of_run(db, run_id, role)
    first = [function for function in known if function.digest in before]
    registered.let_be_known([*first, *(function for function in known if function not in first)])


def needed(db: Database, compile_params: Iterable[str], architectures: Iterable[str]) -> list[dict[str, Any]]:
    """Return the functions, with their sources, that an engine needs to check configs and architectures.

    These include every layer whose name occurs anywhere in the text of an architecture, since the
    architecture may use the layer there.
    """
    if not registered.known():
        return []
    digests = {f.digest for text in compile_params for f in functions_in(parse_compile(text))}
    texts = list(architectures)
    for function in registered.known():
        if function.kind == LAYER and any(function.name in text for text in texts):
            if not function.usable:
                _check_not_named(function.name, texts)
                continue
            digests.add(function.digest)
    rows = sources(db, digests) if digests else []
    # If no version of a layer is named, the first one is meant.
    order = [function.digest for function in registered.known()]
    return sorted(map(dict, rows), key=lambda row: order.index(row["digest"]))


def _check_not_named(name: str, architectures: Iterable[str]) -> None:
    """Raise an error if an architecture names this layer, which the caller has no right to use; the engine
    would only say that it does not know the layer."""
    # An architecture may be a string within JSON.
    named = re.compile(rf'class_name\\?"\s*:\s*\\?"{name}\\?"')
    if any(named.search(text) for text in architectures):
        raise registered.denied(name)
