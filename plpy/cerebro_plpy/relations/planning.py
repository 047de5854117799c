"""Plans the features of related tables: one for each path, column, aggregate and window of time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cerebro_plpy.relations.paths import (
    CATEGORY,
    MOMENT,
    NUMBER,
    Path,
    RelatedColumn,
    RelatedSchema,
    RelatedTable,
    TableName,
    base_of,
)

COUNT, SUM, MEAN, MIN, MAX, STDDEV = "count", "sum", "mean", "min", "max", "stddev"
LAST, SINCE_LAST, DISTINCT, SHARE_OF_TOP = "last", "since_last", "distinct", "share_of_top"
OF_ROWS = (COUNT, SINCE_LAST)
OF_NUMBERS = (SUM, MEAN, MIN, MAX, STDDEV, LAST)
OF_CATEGORIES = (LAST, DISTINCT, SHARE_OF_TOP)
# Aggregates that are computed from the counts of each value.
OF_VALUES = (DISTINCT, SHARE_OF_TOP)
AGGREGATES = (COUNT, SUM, MEAN, MIN, MAX, STDDEV, LAST, SINCE_LAST, DISTINCT, SHARE_OF_TOP)
ALL = "all"
LONGEST_NAME = 63
_NO_WORD = re.compile(r"\W+")


@dataclass(frozen=True)
class RelatedFeature:
    """A column of the output table.

    It is a column of a parent row, or an aggregate of child rows in a window of time before the cut-off.
    """

    name: str
    path: Path
    aggregate: str | None = None
    column: RelatedColumn | None = None
    window: str | None = None

    @property
    def value(self) -> RelatedColumn:
        """The column of the feature. A feature that has none, such as a count of rows, raises TypeError."""
        if self.column is None:
            raise TypeError(self.name)
        return self.column


@dataclass(frozen=True)
class Wishes:
    """The aggregates and the windows of time that a call asks for, and the time column of each table.

    The widest window comes first.
    """

    aggregates: Sequence[str]
    windows: Sequence[str | None]
    times: Mapping[TableName, RelatedColumn]


def plan(
    schema: RelatedSchema, paths: Sequence[Path], wishes: Wishes, taken: Collection[str]
) -> list[RelatedFeature]:
    """Return the features of all paths, in the order of the paths.

    Each feature has a name of its own, which is not in `taken`.
    """
    names = set(taken)
    found = []
    for path in paths:
        for feature in _of_path(schema, path, wishes):
            name = _free_name(feature.name, names)
            names.add(name)
            found.append(RelatedFeature(name, path, feature.aggregate, feature.column, feature.window))
    return found


def _of_path(schema: RelatedSchema, path: Path, wishes: Wishes) -> Iterator[RelatedFeature]:
    label, base = schema.label(path), base_of(path)
    table = schema.tables[path[-1].table if path else schema.entity]
    if not base:
        for column in _values(schema, table):
            yield RelatedFeature(f"{label}_{_column_label(column)}", path, column=column)
        return
    is_timed = any(step.down and step.table in wishes.times for step in base)
    windows = wishes.windows if is_timed else (None,)
    if path == base:
        yield from _of_rows(label, path, wishes.aggregates, windows, is_timed)
    used = {name for step in path[-1:] for name in step.to_columns}
    columns = [one for one in _values(schema, table, keys=True) if one.name not in used]
    linking, time = _linking(schema, table), wishes.times.get(table.name)
    for column in columns:
        if path == base and time is not None and column.name == time.name:
            continue
        for aggregate in wishes.aggregates:
            if aggregate not in (OF_CATEGORIES if column.kind == CATEGORY else OF_NUMBERS):
                continue
            if aggregate == LAST and (not is_timed or column.name in linking):
                continue
            # The last row of a shorter window is the same one, or none.
            for window in windows[:1] if aggregate == LAST else windows:
                name = _named(f"{label}_{aggregate}_{_column_label(column)}", window)
                yield RelatedFeature(name, path, aggregate, column, window)


def _of_rows(
    label: str, path: Path, aggregates: Sequence[str], windows: Sequence[str | None], is_timed: bool
) -> Iterator[RelatedFeature]:
    if COUNT in aggregates:
        for window in windows:
            yield RelatedFeature(_named(f"{label}_count", window), path, COUNT, window=window)
    if SINCE_LAST in aggregates and is_timed:
        name = _named(f"{label}_days_since_last", windows[0])
        yield RelatedFeature(name, path, SINCE_LAST, window=windows[0])


def _values(schema: RelatedSchema, table: RelatedTable, keys: bool = False) -> list[RelatedColumn]:
    """Return the columns that describe a row. With `keys`, include foreign keys, as categories."""
    linking = _linking(schema, table)
    found = []
    for column in table.columns:
        if column.name in linking:
            if keys:
                found.append(RelatedColumn(column.name, CATEGORY, column.element))
        elif column.name not in table.key and column.kind in (NUMBER, MOMENT, CATEGORY):
            found.append(column)
    return found


def _linking(schema: RelatedSchema, table: RelatedTable) -> set[str]:
    return {name for key in schema.keys if key.child == table.name for name in key.columns}


def _column_label(column: RelatedColumn) -> str:
    return f"days_since_{column.name}" if column.kind == MOMENT else column.name


def _named(name: str, window: str | None) -> str:
    return name if window is None else f"{name}_{_NO_WORD.sub('_', window).strip('_')}"


def _free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, shortened if it is too long, and numbered if it is taken."""
    number, candidate = 1, _cut(name, "")
    while candidate in taken:
        number += 1
        candidate = _cut(name, f"_{number}")
    return candidate


def _cut(name: str, suffix: str) -> str:
    """Return name and suffix, in at most LONGEST_NAME bytes. A digest replaces the part that is cut off."""
    if len((name + suffix).encode()) <= LONGEST_NAME:
        return name + suffix
    suffix = f"_{hashlib.sha256(name.encode()).hexdigest()[:6]}{suffix}"
    return name.encode()[: LONGEST_NAME - len(suffix)].decode(errors="ignore") + suffix


def describe(feature: RelatedFeature, label: str) -> str:
    """Return a description of a feature in words."""
    column = "" if feature.column is None else _column_words(feature.column)
    if feature.aggregate is None:
        return f"{column} of {label}"
    when = "before the cut-off" if feature.window is None else f"in the {feature.window} before the cut-off"
    words = {
        COUNT: f"number of rows of {label}",
        SINCE_LAST: f"days since the last row of {label}",
        DISTINCT: f"number of distinct values of {column} in {label}",
        SHARE_OF_TOP: f"share of the most frequent value of {column} in {label}",
        LAST: f"{column} in the last row of {label}",
    }
    return f"{words.get(feature.aggregate, f'{feature.aggregate} of {column} in {label}')} {when}"


def _column_words(column: RelatedColumn) -> str:
    return f"the days since {column.name}" if column.kind == MOMENT else column.name
