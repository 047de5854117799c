"""SQL that reads one partition of a packed table, buffer by buffer, with the caller's rights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.database import Database, Row, as_owner
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, CerebroError
from cerebro_plpy.store.names import Table, parse_table, quote
from cerebro_plpy.store.packed.packed import BUFFER, FOLD, GROUPS, SHAPE, SUMMARY, WEIGHT, PackedSummary


@dataclass(frozen=True)
class Buffer:
    """One buffer of a packed table, without its bytes. Each row of a packed table is a buffer."""

    buffer_id: int
    rows: int
    nbytes: int
    fold: int | None = None
    # The groups of its rows in their order, each with its number and how many rows it has.
    groups: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class Columns:
    """The columns of features, labels and weights that are read from a packed table.

    If rows may be added to the table, only buffers with numbers less than `below` are read. In a `folded`
    table each buffer has a fold, in a `grouped` table it has groups.
    """

    independent: Sequence[str]
    dependent: Sequence[str]
    below: int | None = None
    folded: bool = False
    grouped: bool = False

    @property
    def part(self) -> str:
        """The SQL expression for a buffer's fold or groups; NULL if the table has neither."""
        return FOLD if self.folded else GROUPS if self.grouped else "NULL::integer"

    @property
    def bound(self) -> str:
        """The SQL condition `AND buffer_id < …` for the number `below`; empty if all buffers are read."""
        return "" if self.below is None else f" AND {BUFFER} < {int(self.below)}"


def columns_of(summary: PackedSummary, below: int | None) -> Columns:
    """Return the columns to read from a packed table, with its weights; if `below` is None, all buffers of
    the table's newest version are read."""
    weight = [] if summary.weight_varname is None else [WEIGHT]
    return Columns(
        summary.independent_varname if summary.stored is None else [summary.stored.column],
        [*summary.dependent_varname, *weight],
        below=summary.below if below is None else below,
        folded=summary.folds is not None,
        grouped=summary.group_by is not None,
    )


Version = tuple[str, ...]


def looking(table: str, key: int, columns: Columns) -> tuple[str, str]:
    """Return two statements that list a partition's buffers; both return JSON for `parse`.

    As a buffer's version, the first takes the place (ctid) of its row, and the second takes digests of the
    buffer's contents. The second is for a role that may read only some columns of the table, and so may not
    read places. The first is fast, as it reads no field's contents: the server keeps the length of an
    uncompressed field beside the pointer to it.
    """
    digests = (f"md5({quote(c)})" for c in (*columns.independent, *columns.dependent))
    ways = "ARRAY[tableoid::text, ctid::text, xmin::text]", f"ARRAY[{', '.join(digests)}]"
    by_place, by_contents = (_looking(table, key, columns, f"{way}::text") for way in ways)
    return by_place, by_contents


def _looking(table: str, key: int, columns: Columns, version: str) -> str:
    """Return a statement that lists a partition's buffers as JSON; `version` is SQL for a buffer's version.

    It names every column to be read, so that the server checks the rights on each. Grouping by the
    distribution key makes the list where the rows are: on Greenplum too, no field leaves its segment.
    """
    first = columns.independent[0]
    sizes = " + ".join(f"octet_length({quote(c)})::bigint" for c in columns.independent)
    shapes = (f"{quote(name + '_shape')} IS NULL" for name in (*columns.independent, *columns.dependent))
    labels = (f"{quote(name)} IS NULL" for name in columns.dependent)
    return (
        "SELECT json_agg(json_build_array(b.buffer_id, b.rows, b.nbytes, b.version, b.part)"
        " ORDER BY b.buffer_id)"
        f"::text AS found FROM (SELECT __dist_key__, buffer_id, {quote(first + '_shape')}[1] AS rows,"
        f" {sizes} AS nbytes,"
        f" {version} AS version, {columns.part} AS part, {' OR '.join((*labels, *shapes))} AS incomplete"
        f" FROM {table} WHERE __dist_key__ = {int(key)}{columns.bound}) AS b GROUP BY b.__dist_key__"
    )


def parse(found: str | None) -> tuple[Version, list[Buffer]]:
    """Return the version of a partition, which changes with any of its rows, and the partition's buffers,
    from the JSON that a statement of `looking` returned."""
    rows = json.loads(found or "[]")
    return tuple(row[3] for row in rows), [_buffer(*row[:3], part=row[4]) for row in rows]


def _buffer(buffer_id: int, rows: int, nbytes: int, part: Any) -> Buffer:
    if isinstance(part, list):
        return Buffer(buffer_id, rows, nbytes, groups=[(number, count) for number, count in part])
    return Buffer(buffer_id, rows, nbytes, fold=part)


def may_read(db: Database, role: str, table: str) -> bool:
    """Return whether a role may read all columns of a table; any segment of a cluster can tell this by
    itself."""
    return db.query(
        "SELECT pg_catalog.has_table_privilege($1, $2, 'SELECT') AS found", ["text", "text"], [role, table]
    )[0]["found"]


def look_by(db: Database, statement: str) -> str | None:
    """Return the JSON that a statement of `looking` finds, or None if the partition is empty."""
    rows = db.query(statement)
    return rows[0]["found"] if rows else None


def look(db: Database, statements: Sequence[str]) -> str | None:
    """Return the JSON of the first of these statements for which the caller has the rights; None if the
    partition is empty."""
    first, *others = statements
    try:
        return look_by(db, first)
    except CerebroError as error:
        if error.sqlstate != INSUFFICIENT_PRIVILEGE or not others:
            raise
    return look(db, others)


def contents(db: Database, table: str, keys: Sequence[int], columns: Columns) -> dict[int, str]:
    """Return a digest of each partition's contents, which a dump or a rewrite of the table does not change.

    Of each buffer's features, only three short pieces are read, which costs next to nothing: a table that was
    packed again, or whose rows were added, removed or exchanged, differs in them.
    """
    wanted = [quote(name + "_shape") for name in (*columns.independent, *columns.dependent)]
    for column in map(quote, columns.independent):
        middle = f"octet_length({column}) / 2"
        for start in ("1", middle, f"octet_length({column}) - {_SLICE - 1}"):
            wanted.append(f"md5(substr({column}, greatest({start}, 1), {_SLICE}))")
    wanted += [f"md5({quote(column)})" for column in columns.dependent]
    wanted += [f"md5({columns.part}::text)"] if columns.grouped else [FOLD] if columns.folded else []
    listed = ", ".join(str(int(key)) for key in keys)
    # The lines are made where the rows are; what is put together here is short.
    rows = db.query(
        f"SELECT __dist_key__ AS key, concat_ws(' ', buffer_id, {', '.join(wanted)}) AS line FROM {table}"
        f" WHERE __dist_key__ IN ({listed}){columns.bound} ORDER BY __dist_key__, buffer_id"
    )
    lines: dict[int, list[str]] = {key: [] for key in keys}
    for row in rows:
        lines[row["key"]].append(row["line"])
    return {key: _digest(found) if found else "" for key, found in lines.items()}


def labels_of_groups(db: Database, table: Table, names: Sequence[str], below: int | None) -> Iterator[Row]:
    """Yield, for each buffer of a table in groups, its labels, and its groups with the number of rows of
    each."""
    wanted = ", ".join(quote(column) for name in names for column in (name, name + SHAPE))
    rows = f"{table.quoted}{_bound(below)}"
    for batch in db.scan(f"SELECT {GROUPS} AS groups, {wanted} FROM {rows}", batch=100):
        yield from batch


def _digest(lines: Sequence[str]) -> str:
    return hashlib.md5(" ".join(lines).encode(), usedforsecurity=False).hexdigest()


_SLICE = 1024


def read_buffer(db: Database, table: str, key: int, buffer_id: int, columns: Columns) -> Row:
    """Return the bytes and the shapes of one buffer's features, labels and weights."""
    wanted = [name for c in (*columns.independent, *columns.dependent) for name in (c, f"{c}_shape")]
    return db.query(
        f"SELECT {', '.join(map(quote, wanted))} FROM {table} WHERE __dist_key__ = $1 AND buffer_id = $2",
        ["integer", "integer"],
        [key, buffer_id],
    )[0]


def first_buffers(db: Database, table: str, columns: Sequence[str]) -> list[Row]:
    """Return the bytes and the shapes of these columns in the first buffer of each segment."""
    wanted = [name for c in columns for name in (c, f"{c}_shape")]
    return db.query(
        f"SELECT DISTINCT ON (__dist_key__) {', '.join(map(quote, wanted))} FROM {table}"
        " ORDER BY __dist_key__, buffer_id"
    )


def count_fewest_buffers(db: Database, table: str, below: int | None) -> int:
    """Return how many buffers the segment with the fewest has; segments without rows do not count.

    If `below` is given, only buffers with lower numbers count.
    """
    rows = db.query(
        "SELECT pg_catalog.min(b.buffers) AS fewest FROM"
        f" (SELECT pg_catalog.count(*) AS buffers FROM {table}{_bound(below)} GROUP BY __dist_key__) AS b"
    )
    return rows[0]["fewest"] or 1


def _bound(below: int | None) -> str:
    """Return the SQL condition for buffers with numbers below a limit; empty without a limit."""
    return "" if below is None else f" WHERE {BUFFER} < {int(below)}"


def folds_of_buffers(db: Database, table: str, column: str, below: int | None) -> list[tuple[int, int]]:
    """Return the fold and the number of rows of each buffer, in the order in which `scan_column` reads
    buffers."""
    rows = db.query(
        f"SELECT {FOLD} AS fold, {quote(column + SHAPE)}[1] AS rows FROM {table}"
        f"{_bound(below)} ORDER BY __dist_key__, buffer_id"
    )
    return [(row["fold"], row["rows"]) for row in rows]


def groups_of_buffers(db: Database, table: str, below: int | None) -> list[tuple[int, int]]:
    """Return, for each group in each buffer, its number and how many of the buffer's rows it has. Buffers are
    in the order in which `scan_column` reads them."""
    rows = db.query(f"SELECT {GROUPS} AS groups FROM {table}{_bound(below)} ORDER BY __dist_key__, buffer_id")
    return [(number, count) for row in rows for number, count in row["groups"]]


def scan_column(
    db: Database, table: str, column: str, below: int | None = None
) -> Iterator[tuple[bytes | None, list[int] | None]]:
    """Yield the bytes and the shape of a column in each buffer, segment by segment.

    If `below` is given, only buffers with lower numbers are read.
    """
    statement = (
        f"SELECT {quote(column)} AS data, {quote(column + SHAPE)} AS shape FROM {table}"
        f"{_bound(below)} ORDER BY __dist_key__, buffer_id"
    )
    for batch in db.scan(statement, batch=16):
        for row in batch:
            yield row["data"], row["shape"]


@as_owner
def keep_from_changing(db: Database, tables: Sequence[str], role: str) -> None:
    """Keep packed tables and their summaries from being dropped or rewritten until this transaction ends.

    `tables` has their qualified names. They are locked as a SELECT would lock them, but no user's code runs.
    Tables that the role may not read are not locked.
    """
    for table in tables:
        for each in (table, _summary_of(table)):
            rows = db.query(
                "SELECT pg_catalog.has_any_column_privilege($1, $2, 'SELECT') AS may",
                ["text", "text"],
                [role, each],
            )
            if rows[0]["may"]:
                db.query(f"LOCK TABLE {each} IN ACCESS SHARE MODE")


def _summary_of(table: str) -> str:
    schema, name = parse_table(table, "packed table")
    return quote(name + SUMMARY) if schema is None else quote(schema, name + SUMMARY)
