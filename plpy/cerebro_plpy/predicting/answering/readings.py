"""Reads the series of a source table: one series for each combination of values of its key columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, NOT_SUPPORTED, OUT_OF_RANGE, CerebroError
from cerebro_plpy.forecasting.series import Reading
from cerebro_plpy.forecasting.steps import Stamps
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.store import interrupts, user_code
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import SourceColumn
from cerebro_plpy.store.related import series as store
from cerebro_plpy.store.related.series import SeriesColumns

TIMES = ("date", "timestamp", "timestamptz", *sources.INTEGERS)
# Double precision can represent every whole number up to this one.
LARGEST = 2**53
# Types whose values are words.
WORDS = ("text", "varchar", "bpchar", "name", "uuid")


def find_columns(
    db: Database, source: Table, time: str, value: str, *, keys: Sequence[str], ahead: Sequence[str]
) -> SeriesColumns:
    """Return the columns of a source table from which series are made.

    Raise an error if the type of a column does not allow its use as time, value, key or input.
    """
    known = packed.columns_of(db, source)
    find = partial(sources.find_column, known=known, table=source.quoted)
    stamp, number = find(time), find(value)
    if stamp.is_array or stamp.element not in TIMES:
        raise _wrong_type(
            stamp, "is no time", "Times are of type date, timestamp or timestamptz, or whole numbers."
        )
    if number.is_array or number.element not in sources.NUMBERS:
        raise _wrong_type(number, "cannot be forecast", "Only numbers can.")
    found = [find(name) for name in keys]
    for column in found:
        if column.is_array or not column.sortable:
            raise _wrong_type(column, "cannot name a series", "Cast it to text in a view.")
    if cast := user_code.find_casts(db, source, [column.name for column in found]):
        raise CerebroError(
            f"column {', '.join(cast)} of {source.quoted} has a type with a cast of its own to JSON or text",
            hint="Cast the column to text in a view.",
            sqlstate=NOT_SUPPORTED,
        )
    others = [find(name) for name in ahead]
    for column in others:
        if column.is_array or column.element not in (*sources.NUMBERS, "bool", *WORDS):
            raise _wrong_type(column, "cannot be an input", "Numbers, booleans and texts can.")
        if column.name == number.name:
            raise CerebroError(
                f'column "{column.name}" is the value: it is not known ahead', hint="Leave it out of columns."
            )
    words = [column for column in others if column.element in WORDS]
    return SeriesColumns(stamp, number, found, [one for one in others if one not in words], words)


def read_series(
    db: Database, source: Table, columns: SeriesColumns, zone: str, *, trains: bool = False
) -> list[Reading]:
    """Return all series of a source table, in the order of their key columns.

    A text column must have one value for each series. If it has several, raise an error if `trains`;
    otherwise the series gets None as the value.
    """
    found = []
    for rows in store.read_series(db, source, columns, zone):
        if columns.is_numbered and np.abs(rows.moments).max() > LARGEST:
            raise CerebroError(
                f'column "{columns.time.name}" has times beyond {LARGEST}',
                hint="Count from a later time on, in a view.",
                sqlstate=OUT_OF_RANGE,
            )
        words = []
        for column, (first, last) in zip(columns.words, rows.words, strict=True):
            if first != last and trains:
                raise _changing(column, rows.key, str(first), str(last))
            words.append(first if first == last else None)
        stamps = Stamps(rows.moments, rows.walls)
        found.append(Reading(rows.key, stamps, rows.values, ahead=rows.ahead, words=tuple(words)))
        interrupts.tick(db)
    return found


def _changing(column: SourceColumn, key: str, first: str, last: str) -> CerebroError:
    return CerebroError(
        f'column "{column.name}" of type {column.shown_type} changes within series {key}:'
        f' it has "{shorten(first, 40)}" and "{shorten(last, 40)}"',
        hint="What changes must be a number or a boolean. A view can make them of words.",
        sqlstate=DATATYPE_MISMATCH,
    )


def _wrong_type(column: SourceColumn, problem: str, hint: str) -> CerebroError:
    return CerebroError(
        f'column "{column.name}" of type {column.shown_type} {problem}', hint=hint, sqlstate=DATATYPE_MISMATCH
    )
