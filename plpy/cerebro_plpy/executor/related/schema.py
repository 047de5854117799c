"""The tables around an entity, found by foreign keys, with checks of the caller's rights and of row times."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cerebro_plpy.database import Database
from cerebro_plpy.errors import (
    DATATYPE_MISMATCH,
    INSUFFICIENT_PRIVILEGE,
    NULL_NOT_ALLOWED,
    UNDEFINED_COLUMN,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.madlib.nearest import unknown
from cerebro_plpy.relations.paths import (
    CATEGORY,
    MOMENT,
    NUMBER,
    ForeignKey,
    Path,
    RelatedColumn,
    RelatedSchema,
    RelatedTable,
    TableName,
    is_of_siblings,
    walk,
)
from cerebro_plpy.relations.recipe import MOMENTS
from cerebro_plpy.store import names
from cerebro_plpy.store.names import Table, quote, resolve_table, tokens
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import SourceColumn
from cerebro_plpy.store.related import relations

_NUMBERS = ("int2", "int4", "int8", "float4", "float8", "numeric", "bool")
_TEXTS = ("text", "varchar", "bpchar", "name", "char", "uuid", "citext")
_KEY_FORM = "orders (customer) REFERENCES customers (id)"


@dataclass(frozen=True)
class SchemaRequest:
    """The arguments of a call that say which tables are related to the entity.

    `foreign_keys` are keys that no constraint declares, `omit` are tables to leave out. `times` is JSON with
    the column of each table that says when a row came to be, or null for a timeless table.
    """

    entity: str | None
    depth: int | None
    foreign_keys: Sequence[str] | None
    omit: Sequence[str] | None
    times: str | None


@dataclass(frozen=True)
class FoundSchema:
    """The tables around an entity, the paths to them, the entity's key, and each table's time column."""

    schema: RelatedSchema
    paths: Sequence[Path]
    key: tuple[str, ...]
    times: Mapping[TableName, RelatedColumn]


def find_schema(db: Database, asked: SchemaRequest) -> FoundSchema:
    """Return the tables around the entity.

    Raise an error if the caller may not read one of them, or if a child table has no time column and is not
    declared timeless.
    """
    entity = resolve_table(db, asked.entity, "entity")
    keys = all_keys(db, asked.foreign_keys)
    omitted = {_name(resolve_table(db, text, "table of omit")) for text in asked.omit or ()}
    paths = walk(_name(entity), keys, _depth(asked.depth), omitted)
    reached = list(dict.fromkeys([_name(entity), *(path[-1].table for path in paths if path)]))
    tables = {name: read_table(db, name, may_omit=name != _name(entity)) for name in reached}
    times, timeless = read_times(db, asked.times, tables)
    said = {*times, *timeless}
    # Siblings, the other children of a parent, are used only if `times` mentions them.
    paths = [path for path in paths if not is_of_siblings(path) or {s.table for s in path if s.down} <= said]
    near = [key for key in keys if key.child in tables]
    schema = RelatedSchema(_name(entity), {name: one for name, (one, _) in tables.items()}, near)
    _check_times(paths, times, timeless, tables)
    return FoundSchema(schema, paths, entity_key(schema.tables[_name(entity)], keys), times)


def all_keys(db: Database, named: Sequence[str] | None) -> list[ForeignKey]:
    """Return the foreign keys that the database declares, and those that the caller names."""
    return list(dict.fromkeys([*relations.foreign_keys(db), *named_keys(db, named)]))


def named_keys(db: Database, named: Sequence[str] | None) -> list[ForeignKey]:
    """Return the foreign keys that the caller names."""
    return [_named_key(db, text) for text in named or ()]


def _name(table: Table) -> TableName:
    return table.schema, table.name


def _depth(depth: int | None) -> int:
    if depth is None or not 0 <= depth <= 3:
        raise CerebroError(f"depth is {depth}", hint="It must be from 0 (the entity's own columns) to 3.")
    return depth


def read_table(
    db: Database, name: TableName, *, may_omit: bool = False
) -> tuple[RelatedTable, Mapping[str, SourceColumn]]:
    """Return a table, and those of its columns that the caller may read.

    Raise an error if the caller may read none; with `may_omit`, the hint says that the call can leave the
    table out.
    """
    table = resolve_table(db, quote(*name), "related table")
    readable = relations.readable_columns(db, table)
    if not readable:
        raise CerebroError(
            f"permission denied for {table.quoted}{', to which a foreign key leads' if may_omit else ''}",
            hint="Have its owner grant SELECT on it"
            + (f", or leave it out: omit => ARRAY['{table.quoted}']." if may_omit else "."),
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )
    known = {name: one for name, one in packed.columns_of(db, table).items() if name in readable}
    columns = [RelatedColumn(one.name, kind, one.element) for one in known.values() if (kind := _kind(one))]
    return RelatedTable(name, relations.primary_key(db, table), tuple(columns)), known


def _kind(column: SourceColumn) -> str | None:
    if column.is_array:
        return None
    if column.element in _NUMBERS:
        return NUMBER
    if column.element in MOMENTS:
        return MOMENT
    return CATEGORY if column.is_enum or column.element in _TEXTS else None


def entity_key(entity: RelatedTable, keys: Sequence[ForeignKey]) -> tuple[str, ...]:
    """Return the entity's primary key, or else the columns that all foreign keys to it reference."""
    if entity.key:
        return entity.key
    referenced = {one.of for one in keys if one.parent == entity.name}
    if len(referenced) != 1:
        raise CerebroError(
            f"{quote(*entity.name)} has no primary key",
            detail="By its primary key the rows of the query are joined with it.",
            hint="Add one, or name a foreign key that leads to the columns that are unique:"
            f" foreign_keys => ARRAY['{_KEY_FORM}'].",
            sqlstate=WRONG_STATE,
        )
    return referenced.pop()


def _named_key(db: Database, text: str | None) -> ForeignKey:
    """Return the foreign key that the caller has written as text.

    Raise an error if a column does not exist, or if several rows are equal in the referenced columns.
    """
    marks = tokens(text or "")
    place = next((n for n, token in enumerate(marks) if token == ("name", "references")), None)
    if place is None:
        raise _no_key(text)
    child, columns = _side(db, marks[:place], text)
    parent, of = _side(db, marks[place + 1 :], text)
    if len(columns) != len(of):
        raise _no_key(text)
    if relations.repeats(db, parent, of):
        raise CerebroError(
            f"the foreign key {text} leads to more than one row of {parent.quoted}",
            hint="Name columns of it that are unique together.",
        )
    return ForeignKey(_name(child), columns, _name(parent), of)


def _side(db: Database, marks: Sequence[tuple[str, str]], text: str | None) -> tuple[Table, tuple[str, ...]]:
    if ("mark", "(") not in marks or marks[-1] != ("mark", ")"):
        raise _no_key(text)
    place = list(marks).index(("mark", "("))
    inner = marks[place + 1 : -1]
    columns, commas = [one for _, one in inner[::2]], inner[1::2]
    if len(inner) % 2 == 0 or any(kind != "name" for kind, _ in inner[::2]) or set(commas) - {("mark", ",")}:
        raise _no_key(text)
    written = "".join(quote(one) if kind == "name" else one for kind, one in marks[:place])
    table = resolve_table(db, written, "table of a foreign key")
    for name in names.find_missing_columns(db, table, columns):
        raise CerebroError(
            f'column "{name}" of the foreign key {text} does not exist in {table.quoted}',
            sqlstate=UNDEFINED_COLUMN,
        )
    return table, tuple(columns)


def _no_key(text: str | None) -> CerebroError:
    return CerebroError(f"foreign key {text} cannot be read", hint=f"Write it as SQL does: {_KEY_FORM}.")


ReadTables = Mapping[TableName, tuple[RelatedTable, Mapping[str, SourceColumn]]]


def read_times(
    db: Database, text: str | None, tables: ReadTables
) -> tuple[dict[TableName, RelatedColumn], set[TableName]]:
    """Return the time column of each table that has one, and the tables that are declared timeless."""
    given = {} if text is None else json.loads(text)
    if not isinstance(given, dict) or not all(one is None or isinstance(one, str) for one in given.values()):
        raise CerebroError(
            f"times is {str(text)[:60]}",
            hint='Give the time of each table, null for a timeless one: {"orders": "placed", "tags": null}.',
        )
    times: dict[TableName, RelatedColumn] = {}
    timeless = set()
    for written, column in given.items():
        table = resolve_table(db, written, "table of times")
        # The caller may also name the time of a table that is omitted or beyond depth.
        if column is None or _name(table) not in tables:
            timeless.add(_name(table))
            continue
        _, known = tables[_name(table)]
        found = known.get(column)
        if found is None:
            raise unknown(f'times names the column "{column}" of {table.quoted}', column, list(known))
        if found.is_array or found.element not in MOMENTS:
            raise CerebroError(
                f'the time "{column}" of {table.quoted} is of type {found.shown_type}',
                hint="A time is a date, a timestamp or a timestamptz.",
                sqlstate=DATATYPE_MISMATCH,
            )
        times[_name(table)] = RelatedColumn(found.name, MOMENT, found.element)
    return times, timeless


def _check_times(
    paths: Sequence[Path], times: Collection[TableName], timeless: Collection[TableName], tables: ReadTables
) -> None:
    """Raise an error if a child table has no time, since some of its rows may be from after the cut-off."""
    children = dict.fromkeys(step.table for path in paths for step in path if step.down)
    untimed = [name for name in children if name not in times and name not in timeless]
    if untimed:
        first = untimed[0]
        moments = [one.name for one in tables[first][0].columns if one.kind == MOMENT]
        example = json.dumps({".".join(first): moments[0] if moments else None})
        raise CerebroError(
            f"nothing says when a row of {' or '.join(quote(*name) for name in untimed)} came to be",
            detail="A row counts only if its time is before the cut-off."
            + (f" {quote(*first)} has the times {', '.join(moments)}." if moments else ""),
            hint=f"Name the column, or null for a table whose rows were always there: times => '{example}';"
            " or leave the table out with omit.",
            sqlstate=NULL_NOT_ALLOWED,
        )
