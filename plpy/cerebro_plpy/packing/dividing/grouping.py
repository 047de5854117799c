"""Option `group_by`: the columns whose values say which group a row is in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from cerebro_plpy.database import Database
from cerebro_plpy.errors import (
    DATATYPE_MISMATCH,
    DUPLICATE_COLUMN,
    NOT_SUPPORTED,
    PROGRAM_LIMIT_EXCEEDED,
    CerebroError,
)
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.packing.dividing import parts
from cerebro_plpy.packing.rows.placing import EVERYWHERE
from cerebro_plpy.store import names
from cerebro_plpy.store.names import Table, TargetTable
from cerebro_plpy.store.packed import groups
from cerebro_plpy.store.packed.groups import Groups
from cerebro_plpy.store.packed.packed import SourceColumn

if TYPE_CHECKING:
    from cerebro_plpy.packing.options import PackOptions

# A group's number stands before the hash by which rows are sorted, and takes bits of it.
MOST_GROUPS = 1_000_000
MOST_COLUMNS = 16
_EXAMPLE = 'Write {"group_by": "shop"} or {"group_by": ["country", "shop"]}.'


@dataclass(frozen=True)
class Grouping:
    """The columns that define groups, the table of groups, and the highest number of a group."""

    columns: Sequence[str]
    table: TargetTable
    highest: int
    # For validation rows, the segments on which the groups' training rows lie.
    homes: Sequence[int] | None = None
    # For added rows, the number of rows that each group already has: 0 for a new group.
    rows_before: Sequence[int] = ()


def option(key: str, value: object) -> tuple[str, ...]:
    """Return the checked value of the option `group_by`: the names of the columns."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not found or not all(isinstance(name, str) for name in found):
        raise CerebroError(f"option {key} is {json.dumps(value)[:60]}, not names of columns", hint=_EXAMPLE)
    listed = cast("list[str]", found)
    if len(listed) > MOST_COLUMNS:
        raise CerebroError(f"option {key} names {len(listed)} columns, more than {MOST_COLUMNS}")
    return tuple(listed)


def numbered(
    db: Database,
    source: Table,
    known: Mapping[str, SourceColumn],
    chosen: PackOptions,
    spelled: str,
) -> tuple[Table, Grouping]:
    """Return the rows, each with the number of its group, and the grouping.

    Create the table of groups, named after the packed table `spelled`.
    """
    if chosen.folds is not None:
        raise CerebroError(
            "option group_by does not go with option folds",
            hint='Leave folds out; {"validation": 0.2} holds rows of each group back.',
            sqlstate=NOT_SUPPORTED,
        )
    columns = _columns(source, known, chosen.group_by or ())
    _check(columns)
    vague = groups.by_vague_collation(db, source, [column.name for column in columns])
    if vague is not None:
        raise CerebroError(
            f'column "{vague}" cannot name groups: its collation treats different texts as equal',
            hint=f'Group by {names.quote(vague)} COLLATE "C" in a view.',
            sqlstate=DATATYPE_MISMATCH,
        )
    table = names.target_table(db, names.with_suffix(spelled, groups.SUFFIX))
    count = groups.create(db, table, source, columns)
    _check_count(count)
    types = groups.types_of(db, table.quoted)
    names_of = [column.name for column in columns]
    rows = groups.with_group(source, known, {name: types[name] for name in names_of}, table.quoted)
    return rows, Grouping(names_of, table, count)


def as_training(
    db: Database,
    source: Table,
    known: Mapping[str, SourceColumn],
    training: Table,
    group_by: Sequence[str],
    spelled: str,
) -> tuple[Table, Grouping]:
    """Return validation rows, each with the number of its group in the training table, and their grouping.

    Create a table of groups, named after the packed table `spelled`. Rows of groups that the training table
    does not have are left out, with a notice.
    """
    found = groups.read_groups(db, training, group_by)
    _columns(source, known, group_by)
    table = names.target_table(db, names.with_suffix(spelled, groups.SUFFIX))
    others = groups.rows_of_others(db, source, known, found.types, found.table)
    if others:
        db.notice(f"rows of {source.quoted} of groups without training rows are left out: {others}")
    groups.create_like(db, table, found)
    homes = _homes(found)
    rows = groups.with_group(source, known, found.types, table.quoted)
    return rows, Grouping(list(group_by), table, len(homes), homes)


def _homes(found: Groups) -> list[int]:
    homes = [EVERYWHERE] * max(found.rows, default=0)
    for number, group in found.rows.items():
        homes[number - 1] = EVERYWHERE if group.home is None else group.home
    return homes


def with_added(
    db: Database, source: Table, known: Mapping[str, SourceColumn], packed: Table, group_by: Sequence[str]
) -> tuple[Table, Grouping]:
    """Return the rows to add to a packed table, each with the number of its group, and their grouping.

    New groups are added to the table of groups, with numbers after the existing ones.
    """
    _columns(source, known, group_by)
    found = groups.read_groups(db, packed, group_by)
    highest = max(found.rows, default=0)
    count = groups.add_new(db, found, source, known, after=highest)
    _check_count(highest + count)
    _check_kept(groups.rows_of_others(db, source, known, found.types, found.table), source, found)
    table = TargetTable(packed.schema, packed.name + groups.SUFFIX, found.table)
    rows = groups.with_group(source, known, found.types, found.table)
    before = [0] * (highest + count)
    for number, group in found.rows.items():
        before[number - 1] = group.rows
    return rows, Grouping(list(group_by), table, highest + count, _homes(found), before)


def _check_count(count: int) -> None:
    if count > MOST_GROUPS:
        raise CerebroError(
            f"there are {count} groups, more than {MOST_GROUPS}",
            hint="Group by fewer columns, or by what many rows have in common.",
            sqlstate=PROGRAM_LIMIT_EXCEEDED,
        )


def _columns(source: Table, known: Mapping[str, SourceColumn], group_by: Sequence[str]) -> list[SourceColumn]:
    """Return the columns that define groups; raise an error if the rows lack one of them."""
    parts.check_name(parts.GROUP, known, source.quoted)
    return [sources.find_column(name, known, source.quoted) for name in group_by]


def _check_kept(others: int, source: Table, found: Groups) -> None:
    """Raise an error if `others`, the number of added rows that belong to no group, is above 0."""
    if others:
        raise CerebroError(
            f"{others} rows of {source.quoted} have values that the columns of groups cannot hold",
            detail=f"The packed table has {', '.join(map(' '.join, found.types.items()))}.",
            hint="Cast the columns in a view, or pack all rows again.",
            sqlstate=DATATYPE_MISMATCH,
        )


# Equal values of these types may be written in several ways, or not as a single JSON value.
_NO_KEYS = ("jsonb", "hstore", "money")


def _check(columns: Sequence[SourceColumn]) -> None:
    listed = [column.name for column in columns]
    for column in columns:
        if listed.count(column.name) > 1:
            raise CerebroError(f'option group_by names "{column.name}" twice', sqlstate=DUPLICATE_COLUMN)
        if not column.sortable or column.is_array or column.element in _NO_KEYS:
            raise CerebroError(
                f'column "{column.name}" of type {column.shown_type} cannot name groups',
                hint="Group by plain values that have an order. Cast the column to text in a view.",
                sqlstate=DATATYPE_MISMATCH,
            )
        if column.name in groups.TAKEN:
            raise CerebroError(
                f'option group_by names "{column.name}", which is a column of the result tables',
                hint="Rename the column with a view.",
                sqlstate=DUPLICATE_COLUMN,
            )
