"""SQL on registered models.

It reads with the caller's rights what the caller may use, and with the owner's rights what a version holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, UNDEFINED_OBJECT, WRONG_STATE, CerebroError
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.store.writing import tell_of_model

PREDICT, READ, MANAGE = "predict", "read", "manage"
# The table that the weights are in, as a run of an evaluation names it.
WEIGHTS = "cerebro._model_weights"
_PART_BYTES = 4 * 2**20


@dataclass(frozen=True)
class UsableVersion:
    """A version of a registered model that the caller may use, and the caller's privilege on the model."""

    version_id: int
    version: int
    privilege: str


def find(db: Database, name: str, alias: str | None, version: int | None) -> UsableVersion | None:
    """Return the version that an alias or a number means; None if the caller may use no such version.

    It is read from a view with the caller's rights. So a statement that predicts many rows uses one version
    for all of them, whatever others commit meanwhile.
    """
    rows = db.query(
        "SELECT v.version_id, v.version, v.privilege FROM cerebro.model_versions AS v WHERE v.name = $1"
        " AND CASE WHEN $2 IS NULL THEN v.version = $3 ELSE $2 = ANY (v.aliases) END",
        ["text", "text", "integer"],
        [name, alias, version],
    )
    return UsableVersion(**rows[0]) if rows else None


@dataclass(frozen=True)
class StoredVersion:
    """A version of a registered model, without its weights. `about`, `metrics` and `lineage` are JSON."""

    model_arch: str
    compile_params: str
    fit_params: str
    backend: str | None
    about: str
    metrics: str
    lineage: str
    registered_by: str


@as_owner
def read(db: Database, version_id: int) -> StoredVersion:
    """Return what a version holds, except its weights. No rights are checked: the calling function must have
    found that the user may use the version."""
    rows = db.query(
        "SELECT model_arch, compile_params, fit_params, backend, about, metrics::text AS metrics,"
        " lineage::text AS lineage, registered_by::text AS registered_by"
        " FROM cerebro._model_version WHERE version_id = $1",
        ["bigint"],
        [version_id],
    )
    if not rows:
        raise _dropped()
    return StoredVersion(**rows[0])


@as_owner
def weights(db: Database, version_id: int) -> bytes:
    """Return the weights of a version. No rights are checked: the calling function must have found that the
    user may use the version."""
    batches = db.scan(
        "SELECT w.data FROM cerebro._model_weights AS w JOIN cerebro._model_version AS v USING (digest)"
        " WHERE v.version_id = $1 ORDER BY w.part",
        ["bigint"],
        [version_id],
        batch=1,
    )
    found = b"".join(row["data"] for batch in batches for row in batch)
    if not found:
        raise _dropped()
    return found


def _dropped() -> CerebroError:
    return CerebroError("the version of the model was dropped meanwhile", sqlstate=WRONG_STATE)


@as_owner
def lock(db: Database, name: str) -> bool:
    """Keep other sessions from changing a model until this transaction ends; return whether the model
    exists."""
    return bool(db.query("SELECT FROM cerebro._model WHERE name = $1 FOR UPDATE", ["text"], [name]))


@as_owner
def last_version(db: Database, name: str) -> int:
    """Return the highest version number that a model has had."""
    rows = db.query("SELECT last_version FROM cerebro._model WHERE name = $1", ["text"], [name])
    return rows[0]["last_version"]


@as_owner
def begin(db: Database, name: str, owner: str) -> None:
    """Create a model without versions, which the role `owner` owns, unless there is a model of this name."""
    begun = db.query(
        "INSERT INTO cerebro._model (name, last_version) VALUES ($1, 0)"
        " ON CONFLICT DO NOTHING RETURNING name",
        ["text"],
        [name],
    )
    if begun:
        db.query(
            "INSERT INTO cerebro._model_owner (name, role)"
            " SELECT $1, r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = $2",
            ["text", "text"],
            [name, owner],
        )


def privilege(db: Database, name: str) -> str | None:
    """Return the caller's privilege on a model: predict, read or manage; None if the caller has none."""
    rows = db.query("SELECT privilege FROM cerebro.models WHERE name = $1", ["text"], [name])
    return rows[0]["privilege"] if rows else None


@as_owner
def add(db: Database, name: str, version: int, row: Mapping[str, Any], data: bytes) -> None:
    """Store a version of a model, and its weights unless they are stored already."""
    for part, first in enumerate(range(0, len(data), _PART_BYTES)):
        db.query(
            "INSERT INTO cerebro._model_weights (digest, part, data) VALUES ($1, $2, $3)"
            " ON CONFLICT DO NOTHING",
            ["text", "integer", "bytea"],
            [row["digest"], part, data[first : first + _PART_BYTES]],
        )
    given = {"name": name, "version": version, **row}
    names = ", ".join(given)
    db.query(
        f"INSERT INTO cerebro._model_version ({names}) SELECT {names}"
        " FROM pg_catalog.jsonb_populate_record(NULL::cerebro._model_version, $1::jsonb)",
        ["text"],
        [json.dumps(given)],
    )
    db.query(
        "UPDATE cerebro._model SET last_version = $2 WHERE name = $1", ["text", "integer"], [name, version]
    )


@as_owner
def point(db: Database, name: str, alias: str, version: int) -> None:
    """Make an alias of a model point to a version."""
    db.query(
        "INSERT INTO cerebro._model_alias (name, alias, version) VALUES ($1, $2, $3)"
        " ON CONFLICT (name, alias) DO UPDATE SET version = excluded.version",
        ["text", "text", "integer"],
        [name, alias, version],
    )


@as_owner
def note(
    db: Database, name: str, event: str, role: str, *, alias: str | None = None, version: int | None = None
) -> None:
    """Add an event to a model's history, and notify the sessions that listen."""
    rows = db.query(
        "INSERT INTO cerebro._model_event (name, event, alias, version, role) VALUES ($1, $2, $3, $4, $5)"
        " RETURNING event_id",
        ["text", "text", "text", "integer", "text"],
        [name, event, alias, version, role],
    )
    tell_of_model(db, event, event_id=rows[0]["event_id"])


def aliases(db: Database, name: str) -> dict[str, int]:
    """Return the aliases of a model, each with the number of the version that it points to."""
    rows = db.query("SELECT aliases::text AS aliases FROM cerebro.models WHERE name = $1", ["text"], [name])
    return json.loads(rows[0]["aliases"]) if rows else {}


def events(db: Database, name: str, alias: str) -> list[tuple[str, int | None]]:
    """Return the events in the history of an alias and of the model's versions, each with a version number,
    the oldest first."""
    rows = db.query(
        "SELECT event, version FROM cerebro.model_history WHERE name = $1"
        " AND (alias = $2 OR alias IS NULL) ORDER BY event_id",
        ["text", "text"],
        [name, alias],
    )
    return [(row["event"], row["version"]) for row in rows]


def lineage(db: Database, name: str, version: int) -> dict[str, Any]:
    """Return the document that says how a version was made; empty if the caller may only predict with it."""
    rows = db.query(
        "SELECT lineage::text AS lineage FROM cerebro.model_versions WHERE name = $1 AND version = $2",
        ["text", "integer"],
        [name, version],
    )
    return json.loads(rows[0]["lineage"] or "{}") if rows else {}


def registered_by(db: Database, name: str, version: int) -> str | None:
    """Return the role that registered a version; None if there is no such version that the caller may use."""
    rows = db.query(
        "SELECT registered_by FROM cerebro.model_versions WHERE name = $1 AND version = $2",
        ["text", "integer"],
        [name, version],
    )
    return rows[0]["registered_by"] if rows else None


@as_owner
def drop_alias(db: Database, name: str, alias: str) -> None:
    db.query(
        "DELETE FROM cerebro._model_alias WHERE name = $1 AND alias = $2", ["text", "text"], [name, alias]
    )


@as_owner
def drop(db: Database, name: str, version: int | None = None) -> None:
    """Delete a version, or all versions of a model, with their checks and the weights that no other version
    has."""
    db.query(
        "DELETE FROM cerebro._model_check WHERE name = $1 AND ($2 IS NULL OR version = $2)",
        ["text", "integer"],
        [name, version],
    )
    # A version that is being added elsewhere may have the same weights.
    db.query("LOCK TABLE cerebro._model_weights IN SHARE ROW EXCLUSIVE MODE")
    gone = db.query(
        "DELETE FROM cerebro._model_version WHERE name = $1 AND ($2 IS NULL OR version = $2)"
        " RETURNING digest",
        ["text", "integer"],
        [name, version],
    )
    db.query(
        "DELETE FROM cerebro._model_weights AS w WHERE w.digest = ANY ($1)"
        " AND NOT EXISTS (SELECT FROM cerebro._model_version AS v WHERE v.digest = w.digest)",
        ["text[]"],
        [[row["digest"] for row in gone]],
    )


@as_owner
def drop_model(db: Database, name: str) -> None:
    """Delete a model with all that is stored about it."""
    db.query("DELETE FROM cerebro._model_alias WHERE name = $1", ["text"], [name])
    drop(db, name)
    for table in ("_schedule", "_schedule_run", "_model_grant", "_model_owner", "_model_event", "_model"):
        db.query(f"DELETE FROM cerebro.{table} WHERE name = $1", ["text"], [name])
    tell_of_model(db, "unregistered")


def may_only_predict(name: str) -> CerebroError:
    """Return the error for a caller who may predict with a version but may not read it."""
    return CerebroError(
        f"permission denied to read {name}: you may only predict with it",
        hint=f"Its owner may grant that: SELECT cerebro.grant_model('{name.split('@')[0]}', 'role', 'read').",
        sqlstate=INSUFFICIENT_PRIVILEGE,
    )


def not_registered(name: str, detail: str | None = None) -> CerebroError:
    return CerebroError(
        f"there is no registered model {shorten(name, 130)!r} that you may use",
        detail=detail,
        hint="SELECT name, aliases FROM cerebro.models shows those that you may use, cerebro.model_versions"
        " their versions.",
        sqlstate=UNDEFINED_OBJECT,
    )


def no_such_version(name: str, version: int) -> CerebroError:
    return CerebroError(
        f"{name} has no version {version}",
        hint=f"SELECT version FROM cerebro.model_versions WHERE name = '{name}' shows those that it has.",
        sqlstate=UNDEFINED_OBJECT,
    )


def may_use_cerebro(db: Database, role: int) -> bool:
    """Return whether a role may use the extension's schema."""
    return db.query(
        "SELECT pg_catalog.has_schema_privilege($1::oid, 'cerebro', 'USAGE') AS may", ["oid"], [role]
    )[0]["may"]


@as_owner
def belongs_to(db: Database, name: str, role: str) -> bool:
    """Return whether a role has the rights of a model's owner."""
    rows = db.query(
        "SELECT pg_catalog.pg_has_role($2::name, coalesce(o.role, 10::oid), 'USAGE') AS has"
        " FROM cerebro._model AS m LEFT JOIN cerebro._model_owner AS o ON o.name = m.name WHERE m.name = $1",
        ["text", "text"],
        [name, role],
    )
    return bool(rows) and rows[0]["has"]


def may_become(db: Database, role: int) -> bool:
    """Return whether the caller is a member of a role."""
    return db.query("SELECT pg_catalog.pg_has_role($1::oid, 'MEMBER') AS may", ["oid"], [role])[0]["may"]


@as_owner
def set_owner(db: Database, name: str, role: int) -> None:
    """Make a role the owner of a model, and delete the role's own privilege on it, which it no longer
    needs."""
    db.query(
        "INSERT INTO cerebro._model_owner (name, role) VALUES ($1, $2)"
        " ON CONFLICT (name) DO UPDATE SET role = excluded.role",
        ["text", "oid"],
        [name, role],
    )
    db.query("DELETE FROM cerebro._model_grant WHERE name = $1 AND role = $2", ["text", "oid"], [name, role])


def may_grant_usage(db: Database) -> bool:
    """Return whether the caller may let other roles use the extension."""
    return db.query(
        "SELECT pg_catalog.pg_has_role(nspowner, 'USAGE') AS may FROM pg_catalog.pg_namespace"
        " WHERE nspname = 'cerebro'"
    )[0]["may"]


def grant_usage(db: Database, role: str) -> None:
    """Let a role use the extension; the caller must have the right to grant this."""
    db.query("SELECT cerebro.grant_usage($1::name)", ["text"], [role])


@as_owner
def grant(db: Database, name: str, role: int, privilege: str, granted_by: str) -> None:
    """Grant a role a privilege on a model, in place of the one that it has; role 0 is everybody."""
    db.query(
        "INSERT INTO cerebro._model_grant (name, role, privilege, granted_by) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (name, role) DO UPDATE SET privilege = excluded.privilege,"
        " granted_by = excluded.granted_by, at = pg_catalog.clock_timestamp()",
        ["text", "oid", "text", "text"],
        [name, role, privilege, granted_by],
    )


@as_owner
def revoke(db: Database, name: str, role: int) -> bool:
    """Revoke a role's privilege on a model; return False if it had none."""
    gone = db.query(
        "DELETE FROM cerebro._model_grant WHERE name = $1 AND role = $2 RETURNING name",
        ["text", "oid"],
        [name, role],
    )
    return bool(gone)
