"""SQL on the table of groups beside a packed table; with the caller's rights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import UNDEFINED_TABLE, WRONG_STATE, CerebroError
from cerebro_plpy.store import user_code
from cerebro_plpy.store.dialect import HEAP, distributed
from cerebro_plpy.store.names import Table, TargetTable, quote, resolve_table
from cerebro_plpy.store.packed.packed import GROUP, SourceColumn
from cerebro_plpy.store.packed.same_group import same_group
from cerebro_plpy.store.plain import as_json

SUFFIX = "_groups"
ROWS, SEGMENTS, CLASSES = "__rows__", "__segments__", "__classes__"
# The version of the packed table that brought a group its last rows; validation rows have none.
VERSION = "__version__"
# In the tables of results: whether a model is of all rows.
FALLBACK = "is_fallback"
# In statements: a group's key as JSON, a config's rank in its group, and a model's unit number and config.
KEY_TEXT, PLACE, UNIT, CONFIG = "__key__", "__place__", "__unit__", "__config__"
# Names that columns that make groups cannot have, since the tables of results have columns of these names.
TAKEN = frozenset(
    {
        GROUP, ROWS, SEGMENTS, CLASSES, VERSION, FALLBACK, KEY_TEXT, PLACE, UNIT, CONFIG,
        "__dist_key__", "mst_key", "model_id",
        "model_weights", "model_arch", "compile_params", "fit_params", "model_type", "model_size",
        "metrics_elapsed_time", "metrics_type", "loss_type", "status", "reason", "backend", "loss", "metric",
        *(f"{data}_{what}" for data in ("training", "validation")
          for what in ("metrics_final", "loss_final", "metrics", "loss")),
    }
)  # fmt: skip


_BLANK = (
    f"NULL::bigint AS {ROWS}, NULL::integer[] AS {SEGMENTS}, NULL::integer AS {CLASSES},"
    f" NULL::integer AS {VERSION}"
)


def create(db: Database, table: TargetTable, source: Table, columns: Sequence[SourceColumn]) -> int:
    """Create the table of groups for the rows of `source`, with the groups numbered in the order of their
    keys; return the number of groups."""
    keys = ", ".join(f"s.{quote(column.name)}" for column in columns)
    names = ", ".join(quote(column.name) for column in columns)
    db.query(
        f"CREATE TABLE {table.quoted}{HEAP} AS"
        f" SELECT row_number() OVER (ORDER BY {names})::integer AS {GROUP}, {names},"
        f" {_BLANK}"
        f" FROM (SELECT {keys} FROM {source.rows} GROUP BY {keys}) AS g{distributed(db, 'REPLICATED')}"
    )
    db.query(f"ANALYZE {table.quoted}")
    return db.query(f"SELECT count(*) AS found FROM {table.quoted}")[0]["found"]


def by_vague_collation(db: Database, source: Table, columns: Sequence[str]) -> str | None:
    """Return one of `columns` whose collation treats different texts as equal, or None if none does."""
    rows = db.query(
        "SELECT a.attname::text AS name FROM pg_catalog.pg_attribute AS a"
        " JOIN pg_catalog.pg_collation AS c ON c.oid = a.attcollation AND NOT c.collisdeterministic"
        " WHERE a.attrelid = $1 AND a.attname = ANY ($2::name[]) LIMIT 1",
        ["oid", "text[]"],
        [source.oid, list(columns)],
    )
    return rows[0]["name"] if rows else None


def create_like(db: Database, table: TargetTable, found: Groups) -> None:
    """Create a table with the groups of `found` under the same group numbers; row counts are NULL for now."""
    names = ", ".join(quote(name) for name in found.types)
    db.query(
        f"CREATE TABLE {table.quoted}{HEAP} AS"
        f" SELECT {GROUP}, {names}, {_BLANK}"
        f" FROM {found.table}{distributed(db, 'REPLICATED')}"
    )


def with_group(
    source: Table, known: Mapping[str, SourceColumn], types: Mapping[str, str], groups: str
) -> Table:
    """Return the source's rows with the number that their group has in the table `groups`; rows of groups
    that are not in it are left out."""
    listed = ", ".join(f"s.{quote(column)}" for column in known)
    joined = f"{source.rows} JOIN {groups} AS g ON {same_group(types, known)}"
    return replace(source, selection=f"(SELECT {listed}, g.{GROUP} FROM {joined})")


def rows_of_others(
    db: Database, source: Table, known: Mapping[str, SourceColumn], types: Mapping[str, str], groups: str
) -> int:
    """Return how many of the source's rows belong to no group in the table `groups`."""
    rows = db.query(
        f"SELECT count(*) AS found FROM {source.rows}"
        f" WHERE NOT EXISTS (SELECT FROM {groups} AS g WHERE {same_group(types, known)})"
    )
    return rows[0]["found"]


def finish(
    db: Database,
    table: TargetTable,
    rows: Sequence[int],
    segments: Sequence[Sequence[int]],
    classes: Sequence[int | None],
    version: int | None,
) -> None:
    """Complete the table of groups: write each group's number of rows, its segments, its number of classes
    and its version, and remove groups that have no rows."""
    describe(db, table, rows, segments=segments, classes=classes, version=version)
    db.query(f"DELETE FROM {table.quoted} WHERE {ROWS} IS NULL")
    db.query(
        f"COMMENT ON TABLE {table.quoted} IS"
        " 'The groups of a packed table: their columns, numbers, rows, segments and numbers of classes'"
    )


def describe(
    db: Database,
    table: TargetTable,
    rows: Sequence[int],
    segments: Sequence[Sequence[int]],
    classes: Sequence[int | None],
    version: int | None,
) -> None:
    """Update the groups to which rows were added: add `rows` to their numbers of rows, and set their
    segments, numbers of classes and version."""
    for about in _about(rows, segments, classes):
        db.query(
            f"UPDATE {table.quoted} AS g SET {ROWS} = coalesce(g.{ROWS}, 0) + a.rows,"
            f" {SEGMENTS} = a.segments, {CLASSES} = a.classes, {VERSION} = $2"
            " FROM json_to_recordset($1::json)"
            " AS a (number integer, rows bigint, segments integer[], classes integer)"
            f" WHERE g.{GROUP} = a.number",
            ["text", "integer"],
            [json.dumps(about), version],
        )


def add_new(db: Database, found: Groups, source: Table, known: Mapping[str, SourceColumn], after: int) -> int:
    """Add the source's groups that are not in the table of groups, numbered after `after` in the order of
    their keys; return how many there are."""
    names = ", ".join(map(quote, found.types))
    keys = ", ".join(f"s.{quote(name)}::{kind} AS {quote(name)}" for name, kind in found.types.items())
    db.query(
        f"INSERT INTO {found.table} ({GROUP}, {names})"
        f" SELECT {int(after)} + row_number() OVER (ORDER BY {names}), {names}"
        f" FROM (SELECT DISTINCT {keys} FROM {source.rows}"
        f" WHERE NOT EXISTS (SELECT FROM {found.table} AS g WHERE {same_group(found.types, known)})) AS s"
    )
    return db.query(f"SELECT count(*) AS found FROM {found.table} WHERE {GROUP} > {int(after)}")[0]["found"]


_AT_ONCE = 50_000


def _about(
    rows: Sequence[int], segments: Sequence[Sequence[int]], classes: Sequence[int | None]
) -> Iterable[Sequence[Mapping[str, Any]]]:
    found = [
        {"number": number, "rows": count, "segments": list(own), "classes": seen}
        for number, (count, own, seen) in enumerate(zip(rows, segments, classes, strict=True), 1)
        if count
    ]
    return (found[first : first + _AT_ONCE] for first in range(0, len(found), _AT_ONCE))


@dataclass(frozen=True)
class GroupRow:
    """A group of a packed table; its key is a JSON object with the values of the columns that make groups."""

    number: int
    key: str
    rows: int
    segments: list[int]
    # The number of classes among its rows, if they have classes.
    classes: int | None = None
    # The version of the packed table that brought its last rows.
    version: int | None = None

    @property
    def home(self) -> int | None:
        """The segment that has all of the group's rows, or None if several have."""
        return self.segments[0] if len(self.segments) == 1 else None

    @property
    def values(self) -> dict[str, Any]:
        """The values in the group's key by column; numbers with a fraction are texts, so that none is
        rounded."""
        return json.loads(self.key, parse_float=str)

    @property
    def shown(self) -> str:
        return shown(self.values)


def shown(values: Mapping[str, Any]) -> str:
    """Return the name of a group in messages, such as `country FR, year 2020`."""
    return ", ".join(f"{name} {'NULL' if value is None else value}" for name, value in values.items())


@dataclass(frozen=True)
class Groups:
    """The groups of a packed table, by number, and the types of the columns that make groups."""

    # The table of groups, quoted.
    table: str
    types: Mapping[str, str]
    rows: Mapping[int, GroupRow] = field(default_factory=dict)


def read_groups(db: Database, packed: Table, group_by: Sequence[str]) -> Groups:
    """Return the groups of a packed table, read from the table of groups beside it; raise an error if that
    table is missing."""
    name = quote(packed.schema, packed.name + SUFFIX)
    types = types_of(db, name)
    if not {*group_by, GROUP, ROWS, SEGMENTS, CLASSES, VERSION} <= types.keys():
        raise CerebroError(
            f"{packed.quoted} was packed in groups, and {name}, the table of its groups, is not there",
            hint="Pack the rows again.",
            sqlstate=UNDEFINED_TABLE,
        )
    user_code.refuse_code(db, [resolve_table(db, name)])
    key = ", ".join(f"g.{quote(column)}" for column in group_by)
    rows = db.query(
        f"SELECT g.{GROUP} AS number, (SELECT {as_json('k.*')} FROM (SELECT {key}) AS k) AS key,"
        f" g.{ROWS} AS rows, g.{SEGMENTS} AS segments, g.{CLASSES} AS classes, g.{VERSION} AS version"
        f" FROM {name} AS g ORDER BY 1"
    )
    return Groups(
        name, {column: types[column] for column in group_by}, {r["number"]: GroupRow(**r) for r in rows}
    )


def of_training(db: Database, packed: Table) -> str:
    """Return the quoted name of the table of groups beside a packed table; raise an error if the packed table
    has validation rows."""
    name = quote(packed.schema, packed.name + SUFFIX)
    rows = db.query(f"SELECT count(*) = count({VERSION}) AS own FROM {name}")
    if not rows[0]["own"]:
        raise CerebroError(
            f"{packed.quoted} has the validation rows of groups: no rows can be added",
            hint="Pack all of them again, with cerebro.validation_preprocessor_dl.",
            sqlstate=WRONG_STATE,
        )
    return name


def types_of(db: Database, table: str) -> dict[str, str]:
    """Return the types of a table's columns by name; empty if there is no such table."""
    rows = db.query(
        "SELECT attname::text AS name, format_type(atttypid, atttypmod) AS type FROM pg_attribute"
        " WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
        ["text"],
        [table],
    )
    return {row["name"]: row["type"] for row in rows}
