"""Reads the source in one pass: every batch of rows is decoded, hashed and added to the sorter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from cerebro_plpy.database import Row
from cerebro_plpy.errors import INTERNAL, NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.features.array_rows import fit_shape
from cerebro_plpy.packing.columns.featured import FeaturePart, FeatureReader
from cerebro_plpy.packing.columns.sources import CLASSES, ONE_HOT, SourcePart
from cerebro_plpy.packing.dividing.parts import PartsRead
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.rows.arrays import ArrayForm, ArrayReader, first_shape
from cerebro_plpy.packing.rows.hashing import RowHash
from cerebro_plpy.packing.rows.labels import Classes
from cerebro_plpy.packing.rows.sorting import Sorter
from cerebro_plpy.store.packed.packed import Expression

BATCH_BYTES = 1 << 20
BATCH_ROWS = 4000
# The bytes of features in a batch, which may be far more than the values that they are made from.
FEATURE_BYTES = 16 << 20
PackedPart = SourcePart | FeaturePart


@dataclass
class Column:
    """A packed column while rows are read; it has either a `reader` or, for class labels, `classes`."""

    part: PackedPart
    shape: tuple[int, ...]  # of one packed row
    reader: ArrayReader | FeatureReader | None = None
    classes: Classes | None = None
    # For labels: the number of rows with each code, or with a 1 at each place of a one-hot row.
    counts: np.ndarray = field(default_factory=partial(np.zeros, 0, np.int64))

    def add_counts(self, counts: np.ndarray) -> None:
        """Add the class counts of more rows to the column's counts."""
        total = np.zeros(max(len(self.counts), len(counts)), np.int64)
        total[: len(self.counts)] += self.counts
        total[: len(counts)] += counts.astype(np.int64)
        self.counts = total

    @property
    def stored(self) -> tuple[str, int]:
        """The element type and the width of the column's values in the sorter."""
        if self.classes is not None:
            return "<i4", 1
        return ("<i2" if self.part.kind == ONE_HOT else "<f4"), math.prod(self.shape)

    @property
    def labels(self) -> SourcePart:
        """The `SourcePart` of a label column; raise an error if the column holds features."""
        if isinstance(self.part, FeaturePart):
            raise CerebroError(f'"{self.part.name}" holds features', sqlstate=INTERNAL)
        return self.part

    @property
    def nbytes(self) -> int:
        """The size in bytes of one row's value in the sorter."""
        kind, width = self.stored
        return np.dtype(kind).itemsize * width


def open_column(
    part: PackedPart,
    sample: bytes | str | None,
    shape: Sequence[int] | None,
    divisor: float,
    seed: int,
    seen: Faults,
) -> Column:
    """Return a column to be read; `sample`, its value in the first row, sets the shape of all rows."""
    if isinstance(part, FeaturePart):
        return Column(part, part.input.shape, reader=FeatureReader(part, seen))
    if part.kind == CLASSES:
        return Column(part, (), classes=Classes(part.name, seed))
    if not isinstance(sample, bytes):
        raise CerebroError(
            f'column "{part.name}" is NULL in the first row',
            hint="Leave such rows out with a view, or fill them with coalesce().",
            sqlstate=NULL_NOT_ALLOWED,
        )
    arrived = first_shape(part.name, sample, part.is_bytea)
    if shape is not None:
        _check_shape(part.name, arrived, tuple(shape))
    parts = tuple(column.name for column in part.columns) if part.is_vector_of_columns else ()
    packed_shape = tuple(shape or arrived)
    classes = packed_shape[-1] if part.kind == ONE_HOT else None
    form = ArrayForm(part.name, parts, part.numpy_source, arrived, part.is_bytea, classes=classes)
    return Column(part, packed_shape, reader=ArrayReader(form, divisor, seen))


def fit_columns(columns: Sequence[Column], inputs: Sequence[Sequence[int | None]]) -> None:
    """Give each column the shape of the net's input that its rows enter.

    A flat array takes the shape of the input. Raise an error if a column's rows do not fit.
    """
    for column, wanted in zip(columns, inputs, strict=True):
        is_flat = len(column.shape) == 1
        column.shape = fit_shape(column.shape, wanted, is_flat, f'column "{column.part.name}"')


def _check_shape(name: str, arrived: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Raise an error if rows of shape `arrived` cannot be stored as `shape`; flat rows can be reshaped."""
    if arrived != shape and arrived != (math.prod(shape),):
        raise CerebroError(
            f'column "{name}" has rows of shape {list(arrived)}, which cannot be {list(shape)}'
        )


def fields(parts: Sequence[PackedPart]) -> list[Expression]:
    """Return the SQL expressions that read these packed columns, in the order of `parts`."""
    return [expression for part in parts for expression in part.expressions]


def samples(sample: Row, parts: Sequence[PackedPart], before: int = 0) -> list[Any]:
    """Return the first row's value of each packed column, or None for features, whose shape is known.

    `before` is the number of fields in the row before the first packed column.
    """
    found = []
    for part in parts:
        found.append(None if isinstance(part, FeaturePart) else sample[f"c{before}"])
        before += len(part.expressions)
    return found


def by_column(values: Sequence[Any], columns: Sequence[Column]) -> Iterator[Sequence[Any]]:
    """Yield, for each column, its fields among the `values` of one row or of many rows."""
    place = 0
    for column in columns:
        taken = len(column.part.expressions)
        yield values[place : place + taken]
        place += taken


def batch_rows(sample: Row, columns: Sequence[Column]) -> int:
    """Return how many rows to fetch at a time, so that a batch stays within the limits of memory."""
    size = sum(len(value) for value in sample.values() if value is not None)
    made = sum(column.nbytes for column in columns)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, size), FEATURE_BYTES // max(1, made)))


def read_rows(
    batches: Iterable[list[Row]],
    columns: Sequence[Column],
    sorter: Sorter,
    seed: int,
    seen: Faults,
    parts: PartsRead | None = None,
) -> int:
    """Read all rows into the sorter and record faults in `seen`; return the number of rows."""
    hasher = hasher_of(columns, seed)
    count = len(fields([column.part for column in columns])) + (parts is not None)
    names = [f"c{number}" for number in range(count)]
    total = 0
    for batch in batches:
        values = [[row[name] for row in batch] for name in names]
        read_batch(
            values=values,
            columns=columns,
            sorter=sorter,
            hasher=hasher,
            before=total,
            seen=seen,
            parts=parts,
        )
        total += len(batch)
    return total


def hasher_of(columns: Sequence[Column], seed: int) -> RowHash:
    return RowHash(seed, [column.stored[1] for column in columns])


def read_batch(
    values: Sequence[Sequence[Any]],
    columns: Sequence[Column],
    sorter: Sorter,
    hasher: RowHash,
    before: int,
    seen: Faults,
    parts: PartsRead | None = None,
) -> None:
    """Read a batch of rows into the sorter; `values` has one list per field.

    `before` is the number of rows read earlier. If `parts` is given, the last field is each row's fold or
    group.
    """
    rows = len(values[0])
    hashes, room = sorter.room(rows)
    sums = hasher.sums(rows)
    found = zip(columns, room, by_column(values, columns), strict=True)
    for index, (column, out, own) in enumerate(found):
        if column.classes is not None:
            out[:, 0] = column.classes.codes(own[0])
            column.add_counts(np.bincount(out[:, 0]))
            sums += column.classes.tokens(out[:, 0])
        elif column.reader is not None:
            column.reader.read(own, out, before + 1)
            if column.part.kind == ONE_HOT:
                column.add_counts(np.bincount(out.argmax(axis=1)))
            hasher.add(sums, index, out)
    hashes[:] = RowHash.finish(sums)
    if parts is not None:
        parts.sort_by(values[-1], hashes)
    # Faulty rows are only counted: nothing of this table will be packed.
    if not seen:
        sorter.keep(rows)


def read_column(column: Column, own: Sequence[Sequence[Any]], before: int) -> np.ndarray:
    """Return the values of one column in a batch; `own` has one list per field of the column.

    `before` is the number of rows read earlier.
    """
    values = np.empty((len(own[0]), column.stored[1]), np.float32)
    if column.reader is not None:
        column.reader.read(own, values, before + 1)
    return values.reshape(len(values), *column.shape)


def place_of_labels(
    labels: Sequence[str | None], places: dict[str, int], null_place: int | None
) -> np.ndarray:
    """Return an array that maps the code of each label to the place of its class; NULL has `null_place`."""
    return np.array([null_place if label is None else places[label] for label in labels], np.int64)
