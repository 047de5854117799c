"""Reads the series of a source, and brings them onto the grid of their steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, NOT_SUPPORTED, CerebroError
from cerebro_plpy.forecasting.series import Reading
from cerebro_plpy.forecasting.steps import Stamps
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.store import interrupts
from cerebro_plpy.store.models import models
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import SourceColumn
from cerebro_plpy.store.related import series as store
from cerebro_plpy.store.related.series import SeriesColumns

TIMES = ("date", "timestamp", "timestamptz", *sources.INTEGERS)
# Types whose values are words.
WORDS = ("text", "varchar", "bpchar", "name", "uuid")


def find_columns(
    db: Database, source: Table, time: str, value: str, *, keys: Sequence[str], ahead: Sequence[str]
) -> SeriesColumns:
    """Return the columns that make series; refuse those of types that cannot."""
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
    if cast := models.types_with_casts(db, source, [column.name for column in found]):
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


def read_series(db: Database, source: Table, columns: SeriesColumns, zone: str) -> list[Reading]:
    """Return all series of a source, in the order of their columns."""
    found = []
    for rows in store.read_series(db, source, columns, zone):
        words = tuple(
            _only_word(column, rows.key, *ends)
            for column, ends in zip(columns.words, rows.words, strict=True)
        )
        found.append(Reading(rows.key, Stamps(rows.moments, rows.walls), rows.values, rows.ahead, words))
        interrupts.tick(db)
    return found


def _only_word(column: SourceColumn, key: str, first: str | None, last: str | None) -> str | None:
    """Return the word of a series; refuse several, since nets see words once for a series."""
    if first != last:
        raise CerebroError(
            f'column "{column.name}" of type {column.shown_type} changes within series {key}:'
            f' it has "{shorten(str(first), 40)}" and "{shorten(str(last), 40)}"',
            hint="What changes must be a number or a boolean. A view can make them of words.",
            sqlstate=DATATYPE_MISMATCH,
        )
    return first


def _wrong_type(column: SourceColumn, problem: str, hint: str) -> CerebroError:
    return CerebroError(
        f'column "{column.name}" of type {column.shown_type} {problem}', hint=hint, sqlstate=DATATYPE_MISMATCH
    )
