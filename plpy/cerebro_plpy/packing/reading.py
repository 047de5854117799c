"""One pass over the source: every batch is decoded, hashed and handed to the sorter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..database import Row
from ..errors import NULL_NOT_ALLOWED, CerebroError
from .arrays import Form, Reader, first_shape
from .faults import Faults
from .hashing import RowHash
from .labels import Classes
from .sorting import Sorter
from .sources import CLASSES, ONE_HOT, Part

BATCH_BYTES = 1 << 20
BATCH_ROWS = 4000


@dataclass
class Column:
    """A column while it is read: exactly one of reader and classes is set."""

    part: Part
    shape: tuple[int, ...]  # of one packed row
    reader: Reader | None = None
    classes: Classes | None = None

    @property
    def stored(self) -> tuple[str, int]:
        """Element type and width between reading and writing."""
        if self.classes is not None:
            return "<i4", 1
        return ("<i2" if self.part.kind == ONE_HOT else "<f4"), math.prod(self.shape)


def open_column(
    part: Part,
    sample: bytes | str | None,
    shape: Sequence[int] | None,
    divisor: float,
    seed: int,
    seen: Faults,
) -> Column:
    """Prepare a column; the first row's value says what shape all have."""
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
    form = Form(part.name, parts, part.numpy_source, arrived, part.is_bytea)
    return Column(part, tuple(shape or arrived), reader=Reader(form, divisor, seen))


def _check_shape(name: str, arrived: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Flat rows may be given any shape of their size; others have theirs."""
    if arrived != shape and arrived != (math.prod(shape),):
        raise CerebroError(
            f'column "{name}" has rows of shape {list(arrived)}, which cannot be {list(shape)}'
        )


def batch_rows(sample: Row) -> int:
    """How many rows to fetch at a time."""
    size = sum(len(value) for value in sample.values() if value is not None)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, size)))


def read_rows(
    batches: Iterable[list[Row]], columns: Sequence[Column], sorter: Sorter, seed: int, seen: Faults
) -> int:
    """Read all rows into the sorter and give their number; what is wrong with them is noted."""
    hasher = RowHash(seed, [column.stored[1] for column in columns])
    total = 0
    for batch in batches:
        hashes, room = sorter.room(len(batch))
        sums = hasher.sums(len(batch))
        for index, (column, out) in enumerate(zip(columns, room, strict=True)):
            values = [row[f"c{index}"] for row in batch]
            if column.classes is not None:
                out[:, 0] = column.classes.codes(values)
                sums += column.classes.tokens(out[:, 0])
            elif column.reader is not None:
                column.reader.read(values, out, total + 1)
                hasher.add(sums, index, out)
        hashes[:] = RowHash.finish(sums)
        total += len(batch)
        # Faulty rows are only counted: nothing of this table will be packed.
        if not seen:
            sorter.keep(len(batch))
    return total


def place_of_labels(
    labels: Sequence[str | None], places: dict[str, int], null_place: int | None
) -> np.ndarray:
    """Turn codes into places among the sorted classes: an array to be indexed by code."""
    return np.array([null_place if label is None else places[label] for label in labels], np.int64)
