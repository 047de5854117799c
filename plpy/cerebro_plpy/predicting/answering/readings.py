"""Reads the series of a source, and brings them onto the grid of their steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, NOT_SUPPORTED, CerebroError
from cerebro_plpy.forecasting.series import Reading
from cerebro_plpy.forecasting.steps import Stamps
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.store import interrupts
from cerebro_plpy.store.models import models
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import SourceColumn
from cerebro_plpy.store.related import series as store
from cerebro_plpy.store.related.series import SeriesColumns

TIMES = ("date", "timestamp", "timestamptz")


def find_columns(
    db: Database, source: Table, time: str, value: str, *, keys: Sequence[str], ahead: Sequence[str]
) -> SeriesColumns:
    """Return the columns that make series; refuse those of types that cannot."""
    known = packed.columns_of(db, source)
    find = partial(sources.find_column, known=known, table=source.quoted)
    stamp, number = find(time), find(value)
    if stamp.is_array or stamp.element not in TIMES:
        raise _wrong_type(stamp, "is no time", "Times are of type date, timestamp or timestamptz.")
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
        if column.is_array or column.element not in (*sources.NUMBERS, "bool"):
            raise _wrong_type(column, "cannot be known ahead", "Only numbers and booleans can.")
        if column.name == number.name:
            raise CerebroError(
                f'column "{column.name}" is the value: it is not known ahead', hint="Leave it out of columns."
            )
    return SeriesColumns(stamp, number, found, others)


def read_series(db: Database, source: Table, columns: SeriesColumns, zone: str) -> list[Reading]:
    """Return all series of a source, in the order of their columns."""
    found = []
    for rows in store.read_series(db, source, columns, zone):
        found.append(Reading(rows.key, Stamps(rows.moments, rows.walls), rows.values, rows.ahead))
        interrupts.tick(db)
    return found


def _wrong_type(column: SourceColumn, problem: str, hint: str) -> CerebroError:
    return CerebroError(
        f'column "{column.name}" of type {column.shown_type} {problem}', hint=hint, sqlstate=DATATYPE_MISMATCH
    )
