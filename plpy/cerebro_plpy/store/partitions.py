"""SQL that reads one partition of a packed table, buffer by buffer, with the caller's rights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_plpy.database import Database, Row
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, CerebroError
from cerebro_plpy.store.names import quote


@dataclass(frozen=True)
class Buffer:
    """One row of a packed table, without its bytes."""

    buffer_id: int
    rows: int
    nbytes: int


@dataclass(frozen=True)
class Columns:
    """The columns of a packed table that hold features and labels; the shapes stand beside them."""

    independent: Sequence[str]
    dependent: Sequence[str]


def buffers(db: Database, table: str, key: int, columns: Columns) -> tuple[tuple[object, ...], list[Buffer]]:
    """What a partition consists of, and a version that changes with any of its rows.

    No field is fetched where rows have a place: the length of an uncompressed one stands beside its pointer.
    """
    try:
        return _buffers(db, table, key, columns, _PLACE)
    except CerebroError as error:
        if error.sqlstate != INSUFFICIENT_PRIVILEGE:
            raise
    # Who was granted the columns of a table alone may not read a row's place.
    contents = (f"md5({quote(c)})" for c in (*columns.independent, *columns.dependent))
    return _buffers(db, table, key, columns, f"ARRAY[{', '.join(contents)}]::text")


_PLACE = "ARRAY[tableoid::text, ctid::text, xmin::text]::text"


def _buffers(
    db: Database, table: str, key: int, columns: Columns, version: str
) -> tuple[tuple[object, ...], list[Buffer]]:
    """All columns of the packed table are named, so that rights on each of them are asked for."""
    first = columns.independent[0]
    sizes = " + ".join(f"octet_length({quote(c)})::bigint" for c in columns.independent)
    shapes = (f"{quote(name + '_shape')} IS NULL" for name in (*columns.independent, *columns.dependent))
    labels = (f"{quote(name)} IS NULL" for name in columns.dependent)
    rows = db.query(
        f"SELECT buffer_id, {quote(first + '_shape')}[1] AS rows, {sizes} AS nbytes, {version} AS version,"
        f" {' OR '.join((*labels, *shapes))} AS incomplete"
        f" FROM {table} WHERE __dist_key__ = $1 ORDER BY buffer_id",
        ["integer"],
        [key],
    )
    return (
        tuple(row["version"] for row in rows),
        [Buffer(row["buffer_id"], row["rows"], row["nbytes"]) for row in rows],
    )


def contents(db: Database, table: str, key: int, columns: Columns) -> str:
    """A digest of what a partition holds, wherever its rows lie: it outlives a dump, and any rewriting.

    Features are looked at in three places of each buffer, which is next to nothing to read: a table that
    was packed again, or whose rows were added, removed or exchanged, differs there.
    """
    wanted = [quote(name + "_shape") for name in (*columns.independent, *columns.dependent)]
    for column in map(quote, columns.independent):
        middle = f"octet_length({column}) / 2"
        for start in ("1", middle, f"octet_length({column}) - {_SLICE - 1}"):
            wanted.append(f"md5(substr({column}, greatest({start}, 1), {_SLICE}))")
    wanted += [f"md5({quote(column)})" for column in columns.dependent]
    # The lines are made where the rows are; what is put together here is short.
    rows = db.query(
        f"SELECT concat_ws(' ', buffer_id, {', '.join(wanted)}) AS line FROM {table}"
        " WHERE __dist_key__ = $1 ORDER BY buffer_id",
        ["integer"],
        [key],
    )
    lines = " ".join(row["line"] for row in rows).encode()
    return hashlib.md5(lines, usedforsecurity=False).hexdigest() if rows else ""


_SLICE = 1024


def read_buffer(db: Database, table: str, key: int, buffer_id: int, columns: Columns) -> Row:
    """The bytes and shapes of one buffer."""
    wanted = [name for c in (*columns.independent, *columns.dependent) for name in (c, f"{c}_shape")]
    return db.query(
        f"SELECT {', '.join(map(quote, wanted))} FROM {table} WHERE __dist_key__ = $1 AND buffer_id = $2",
        ["integer", "integer"],
        [key, buffer_id],
    )[0]
