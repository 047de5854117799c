"""SQL on the versions of packed tables: the rows that each call packed, and what changes when rows are added.

It runs with the caller's rights. A version is a bound on the numbers of buffers, so that a run reads only the
buffers that were there when it began, whatever is added meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATA_CORRUPTED, INSUFFICIENT_PRIVILEGE, WRONG_STATE, CerebroError
from cerebro_plpy.store.names import Table, quote

VERSIONS = ("packed_versions", "jsonb")


@dataclass(frozen=True)
class PackedVersion:
    """The rows that one call has packed. The buffers of this and of all earlier versions have numbers less
    than `below`."""

    rows: int
    below: int
    source_table: str


def as_json(versions: Sequence[PackedVersion]) -> str | None:
    """Return the versions as JSON text for the summary; None if there are none, as in a table packed
    elsewhere."""
    return json.dumps([asdict(version) for version in versions]) if versions else None


def read(given: Any) -> list[PackedVersion]:
    """Return the versions in `given`, a value from the summary of a user's packed table; raise an error if
    packing cannot have written it."""
    if given is None:
        return []
    listed = given if isinstance(given, list) else [None]
    found = [_version(one) for one in listed]
    bounds = [version.below for version in found]
    if bounds != sorted(bounds):
        raise _corrupt()
    return found


def _version(given: Any) -> PackedVersion:
    if not isinstance(given, Mapping):
        raise _corrupt()
    rows, below, source = (given.get(key) for key in ("rows", "below", "source_table"))
    whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**62 for n in (rows, below))
    if not whole or not isinstance(source, str):
        raise _corrupt()
    return PackedVersion(int(rows or 0), int(below or 0), source)


def _corrupt() -> CerebroError:
    return CerebroError(
        f"{VERSIONS[0]} in the summary of the packed table is not what packing writes",
        hint="Pack the table again.",
        sqlstate=DATA_CORRUPTED,
    )


def versions(db: Database, summary: str) -> list[PackedVersion]:
    """Return the versions of a packed table, given the quoted name of its summary."""
    text = db.query(f"SELECT {VERSIONS[0]}::text AS found FROM {summary}")[0]["found"]
    return read(None if text is None else json.loads(text))


def check_rights(db: Database, table: Table, summary: str, groups: str | None = None) -> None:
    """Raise an error, before any work is done, if the caller lacks a right that is needed to add rows."""
    needed = [(table.quoted, "INSERT"), (summary, "UPDATE")]
    needed += [] if groups is None else [(groups, "INSERT"), (groups, "UPDATE")]
    for what, right in needed:
        row = db.query(
            "SELECT pg_catalog.has_table_privilege($1, $2) AS may", ["text", "text"], [what, right]
        )[0]
        if not row["may"]:
            also = "" if groups is None else ", and both on the table of its groups"
            raise CerebroError(
                f"permission denied for table {what}",
                detail=f"Adding rows takes INSERT on the packed table and UPDATE on its summary{also}.",
                hint=f"Its owner grants it: GRANT {right} ON {what} TO …",
                sqlstate=INSUFFICIENT_PRIVILEGE,
            )


def lock(db: Database, summary: str) -> None:
    """Keep other sessions from adding rows to a packed table until this transaction ends; they may still read
    it."""
    db.query(f"LOCK TABLE {summary} IN SHARE ROW EXCLUSIVE MODE")


def write(
    db: Database,
    summary: str,
    known: Sequence[PackedVersion],
    buffer_size: int,
    classes: Mapping[str, tuple[str, Sequence[str | int | None]]],
) -> None:
    """Write the versions `known` to the summary, with the total of rows and the buffer size. `classes` has
    the types and values of further columns to change, by name; these columns are arrays."""
    changed: dict[str, tuple[str, Any]] = {
        "total_rows": ("bigint", sum(version.rows for version in known)),
        "buffer_size": ("integer", buffer_size),
        VERSIONS[0]: (VERSIONS[1], as_json(known)),
        **classes,
    }
    # The elements of arrays are given as text, whatever they are.
    types = ["text[]" if name in classes else kind for name, (kind, _) in changed.items()]
    sets = ", ".join(
        f"{quote(name)} = ${number}::{kind}" for number, (name, (kind, _)) in enumerate(changed.items(), 1)
    )
    values = [value for _, value in changed.values()]
    db.query(f"UPDATE {summary} SET {sets}", types, values)
    if len(versions(db, summary)) != len(known):
        # A policy or a trigger of the table's has kept it as it was.
        raise CerebroError(f"{summary} could not be changed", sqlstate=WRONG_STATE)
