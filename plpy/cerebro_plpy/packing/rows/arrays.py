"""Decodes numeric arrays, as the server stores them, into NumPy arrays, one batch of rows at a time.

An array arrives as the bytes of its datum: number of dimensions, offset of the elements (0 if none can be
NULL), element type, sizes and lower bounds of the dimensions, and then the elements in the machine's own
format. NumPy reads a whole batch as one structured view.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.packing import faults
from cerebro_plpy.packing.faults import Faults

_FIXED = struct.Struct("=iiI")
_SIZE = struct.Struct("=i")
# The length word of the datum is not among the bytes, but offsets and alignment count from it.
_LENGTH_WORD = 4


def shape_of(datum: bytes) -> tuple[int, ...]:
    """Return the sizes of an array's dimensions from the bytes of its datum."""
    dimensions = _FIXED.unpack_from(datum)[0]
    return struct.unpack_from(f"={dimensions}i", datum, _FIXED.size)


def _start(dimensions: int) -> int:
    bare = _LENGTH_WORD + _FIXED.size + 2 * _SIZE.size * dimensions
    return (bare + 7) // 8 * 8 - _LENGTH_WORD


@dataclass(frozen=True)
class ArrayForm:
    """The element type and shape that a column's value must have in every row."""

    name: str
    parts: tuple[str, ...]  # the columns that a vector was made of, so that errors name the right one
    source: str  # NumPy's name of the element type as it arrives
    shape: tuple[int, ...]  # as it arrives
    is_bytea: bool = False
    classes: int | None = None  # how many there are, in one-hot vectors

    @property
    def width(self) -> int:
        return math.prod(self.shape)

    @property
    def start(self) -> int:
        return 0 if self.is_bytea else _start(len(self.shape))

    def part(self, element: int) -> str:
        return self.parts[element] if self.parts else self.name


class ArrayReader:
    """A reader that decodes batches of one column's values into float32 or int16 arrays."""

    def __init__(self, form: ArrayForm, divisor: float, seen: Faults) -> None:
        self.form = form
        self._divisor = np.float32(divisor)
        self._faults = seen
        self._size = form.start + form.width * np.dtype(form.source).itemsize
        self._record = np.dtype(
            {
                "names": ["data"],
                "formats": [(form.source, (form.width,))],
                "offsets": [form.start],
                "itemsize": self._size,
            }
        )
        self._header = b"" if form.is_bytea else _FIXED.pack(len(form.shape), 0, 0)[:8]
        self._sizes = struct.pack(f"={len(form.shape)}i", *form.shape)

    def read(self, fields: Sequence[Sequence[bytes | None]], out: np.ndarray, first_row: int) -> None:
        """Decode a batch into `out`, of shape (rows, width); record a fault for each row where that fails."""
        (values,) = fields
        numbers = np.arange(first_row, first_row + len(values))
        data = self._view(values)
        if data is None:
            kept = self._repaired(values, first_row)
            numbers = np.array(list(kept))
            data = self._view(list(kept.values()))
            if data is None:
                return
        rows = out[: len(data)]
        if self.form.classes is not None:
            self._one_hot(data, rows, numbers, self.form.classes)
        else:
            self._floats(data, rows, numbers)

    def _view(self, values: Sequence[bytes | None]) -> np.ndarray | None:
        """Return the elements of a batch as one array, or None if a value does not have the expected form."""
        try:
            if set(map(len, values)) != {self._size}:  # type: ignore[arg-type]
                return None
        except TypeError:
            return None
        joined = b"".join(values)  # type: ignore[arg-type]
        if not self._all_headers_match(joined, len(values)):
            return None
        return np.frombuffer(joined, self._record)["data"]

    def _all_headers_match(self, joined: bytes, rows: int) -> bool:
        if self.form.is_bytea:
            return True
        table = np.frombuffer(joined, np.uint8).reshape(rows, self._size)
        sizes = table[:, _FIXED.size : _FIXED.size + len(self._sizes)]
        return bool(
            (table[:, :8] == np.frombuffer(self._header, np.uint8)).all()
            and (sizes == np.frombuffer(self._sizes, np.uint8)).all()
        )

    def _repaired(self, values: Sequence[bytes | None], first_row: int) -> dict[int, bytes]:
        """Return the valid values of a batch, by row number; record a fault for each of the other rows."""
        rows = {number: self._check_value(value, number) for number, value in enumerate(values, first_row)}
        return {number: row for number, row in rows.items() if row is not None}

    def _check_value(self, value: bytes | None, number: int) -> bytes | None:
        if value is None:
            self._faults.add(self.form.name, faults.IS_NULL, [number])
            return None
        shape = (len(value),) if self.form.is_bytea else shape_of(value)
        expected = (self.form.width,) if self.form.is_bytea else self.form.shape
        if shape != expected:
            example = f", with {_braces(shape)} instead of {_braces(expected)}"
            self._faults.add(self.form.name, faults.OTHER_SHAPE, [number], example)
            return None
        return value if self.form.is_bytea else self._without_bitmap(value, number)

    def _without_bitmap(self, value: bytes, number: int) -> bytes | None:
        offset = _FIXED.unpack_from(value)[1]
        if offset == 0:
            return value
        begin = _FIXED.size + 2 * _SIZE.size * len(self.form.shape)
        bitmap = np.frombuffer(value, np.uint8, (self.form.width + 7) // 8, begin)
        present = np.unpackbits(bitmap, count=self.form.width, bitorder="little")
        for element in np.flatnonzero(present == 0)[: len(self.form.parts) or 1]:
            problem = faults.IS_NULL if self.form.parts else faults.NULL_ELEMENTS
            self._faults.add(self.form.part(int(element)), problem, [number])
        if not present.all():
            return None
        element_type = _FIXED.unpack_from(value)[2]
        head = _FIXED.pack(len(self.form.shape), 0, element_type) + self._sizes * 2
        return head.ljust(self.form.start, b"\0") + value[offset - _LENGTH_WORD :]

    def _floats(self, data: np.ndarray, out: np.ndarray, numbers: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            if self._divisor == 1:
                out[...] = data
            elif data.dtype == np.float32:
                np.divide(data, self._divisor, out=out)
            else:
                out[...] = data
                out /= self._divisor
        if not np.isfinite(out).all():
            self._note_not_finite(data, out, numbers)

    def _note_not_finite(self, data: np.ndarray, out: np.ndarray, numbers: np.ndarray) -> None:
        bad = ~np.isfinite(out)
        beyond = bad & np.isfinite(data)
        for problem, cells in ((faults.NOT_FINITE, bad & ~beyond), (faults.TOO_LARGE, beyond)):
            for name, columns in self._by_part(cells):
                rows = np.flatnonzero(columns.any(axis=1))
                if len(rows):
                    value = data[rows[0]][cells[rows[0]]][0]
                    self._faults.add(name, problem, numbers[rows].tolist(), f", with {value}")

    def _by_part(self, cells: np.ndarray) -> list[tuple[str, np.ndarray]]:
        if not self.form.parts:
            return [(self.form.name, cells)]
        return [(name, cells[:, i : i + 1]) for i, name in enumerate(self.form.parts)]

    def _one_hot(self, data: np.ndarray, out: np.ndarray, numbers: np.ndarray, classes: int) -> None:
        """Decode one-hot vectors; record rows with values other than 0 and 1, or without exactly one 1.

        If there is only one class, its single element may be 0 or 1.
        """
        with np.errstate(all="ignore"):
            out[...] = data
        ones = data == 1
        strange = ~(ones | (data == 0)).all(axis=1)
        several = (ones.reshape(len(data), -1, classes).sum(axis=2) != 1).any(axis=1) & (classes > 1)
        for problem, found in ((faults.NOT_ONE_HOT, strange), (faults.OTHER_THAN_ONE, several & ~strange)):
            if found.any():
                example = f", with {_some(data[found][0])}"
                self._faults.add(self.form.name, problem, numbers[found].tolist(), example)


def first_shape(name: str, datum: bytes, is_bytea: bool) -> tuple[int, ...]:
    """Return the shape of a column's value in the first row; raise an error if the value is empty."""
    shape = (len(datum),) if is_bytea else shape_of(datum)
    if math.prod(shape) == 0 or not shape:
        raise CerebroError(
            f'column "{name}" holds an empty {"bytea" if is_bytea else "array"} in its first row',
            hint="Every row needs at least one value.",
        )
    return shape


def _some(values: np.ndarray) -> str:
    """Return the first elements of a row as text, for an error message."""
    shown = [f"{value:g}" for value in values[:8]]
    return "{" + ",".join([*shown, *(["…"] if len(values) > len(shown) else [])]) + "}"


def _braces(shape: Sequence[int]) -> str:
    return "{" + ",".join(map(str, shape)) + "}"
