"""Option `group_by`: the columns whose values say which group a row is in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ..database import Database
from ..errors import DATATYPE_MISMATCH, DUPLICATE_COLUMN, NOT_SUPPORTED, CerebroError
from ..store import groups, names
from ..store.names import Table, TargetTable
from ..store.packed import SourceColumn
from . import sources

if TYPE_CHECKING:
    from .options import PackOptions

# A group's number stands before the hash by which rows are sorted, and takes bits of it.
MOST_GROUPS = 1_000_000
MOST_COLUMNS = 16
_EXAMPLE = 'Write {"group_by": "shop"} or {"group_by": ["country", "shop"]}.'


@dataclass(frozen=True)
class Grouping:
    """The columns that make groups, the table of groups, and how many it has."""

    columns: Sequence[str]
    table: TargetTable
    count: int


def option(key: str, value: object) -> tuple[str, ...]:
    """The check of the option."""
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
    """Make the table of groups; gives the rows with a column more, the number of their group."""
    db.server.check_packs_groups()
    for name, said in {"folds": chosen.folds, "validation": chosen.validation}.items():
        if said is not None:
            raise CerebroError(
                f"option group_by does not go with option {name}",
                hint=f"Leave {name} out: each group is measured on the rows that it is trained on.",
                sqlstate=NOT_SUPPORTED,
            )
    columns = [sources.find_column(name, known, source.quoted) for name in chosen.group_by or ()]
    _check(columns)
    table = names.target_table(db, names.with_suffix(spelled, groups.SUFFIX))
    count = groups.create(db, table, source, columns)
    if count > MOST_GROUPS:
        raise CerebroError(
            f"there are {count} groups, and there may be {MOST_GROUPS}",
            hint="Group by fewer columns, or by what many rows have in common.",
        )
    rows = groups.with_group(source, list(known), columns, table)
    return rows, Grouping([column.name for column in columns], table, count)


def _check(columns: Sequence[SourceColumn]) -> None:
    listed = [column.name for column in columns]
    for column in columns:
        if listed.count(column.name) > 1:
            raise CerebroError(f'option group_by names "{column.name}" twice', sqlstate=DUPLICATE_COLUMN)
        if not column.sortable or column.is_array:
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
