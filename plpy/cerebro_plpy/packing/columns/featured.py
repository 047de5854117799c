"""Reads the inputs that a feature specification defines: lists the fields they need, and decodes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from cerebro_plpy.features import encode, images
from cerebro_plpy.features.specification import (
    ARRAY,
    DATE,
    NUMBER,
    Array,
    Category,
    Date,
    Feature,
    FeatureInput,
    Image,
    Number,
    Text,
    read_feature,
)
from cerebro_plpy.packing.columns.sources import NUMPY, VALUES
from cerebro_plpy.packing.faults import IS_NULL, NO_IMAGE, Faults
from cerebro_plpy.packing.rows.arrays import ArrayForm, ArrayReader, shape_of
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import Expression, SourceColumn

# Doubles come as the bytes of an array: a header, then the values.
_HEADER = 20


@dataclass(frozen=True)
class FeaturePart:
    """One input of a packed table, made of features; `columns` has the source column of each feature."""

    input: FeatureInput
    columns: tuple[SourceColumn, ...]

    kind = VALUES

    @property
    def name(self) -> str:
        return self.input.name

    @property
    def in_block(self) -> list[SourceColumn]:
        """The columns of numbers and dates, which are read together as one array."""
        pairs = zip(self.columns, self.input.features, strict=True)
        return [column for column, feature in pairs if feature.way.kind in (NUMBER, DATE)]

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The SQL expressions that read the columns: one for all numbers and dates, one per other column."""
        block = self.in_block
        found = [Expression(packed.NUMBERS, tuple(block))] if block else []
        for column, feature in zip(self.columns, self.input.features, strict=True):
            if feature.way.kind not in (NUMBER, DATE):
                found.append(Expression(_how(column, feature), (column,)))
        return tuple(found)


def _how(column: SourceColumn, feature: Feature) -> str:
    if column.element == "bytea":
        return packed.BYTES
    return packed.ARRAY if feature.way.kind == ARRAY else packed.PLAIN


# Decodes the values of one column into its part of an array.
Read = Callable[[Any, np.ndarray, int], None]


class FeatureReader:
    """A reader that decodes the fields of a batch of rows into one input of float32."""

    def __init__(self, part: FeaturePart, seen: Faults) -> None:
        self._part, self._seen = part, seen
        self._block = len(part.in_block)
        self._record = np.dtype(
            {
                "names": ["data"],
                "formats": [("=f8", (self._block,))],
                "offsets": [_HEADER],
                "itemsize": _HEADER + 8 * self._block,
            }
        )
        elements = [column.element for column in part.columns]
        self._readers = [
            _reader(feature, element, seen)
            for feature, element in zip(part.input.features, elements, strict=True)
        ]

    def read(self, fields: Sequence[Sequence[Any]], out: np.ndarray, first_row: int) -> None:
        """Decode a batch into `out`, of shape (rows, width); record a fault for each row where that fails."""
        rest = iter(fields)
        block = self._numbers(next(rest)) if self._block else iter(())
        place = 0
        for feature, read in zip(self._part.input.features, self._readers, strict=True):
            values = next(block if feature.way.kind in (NUMBER, DATE) else rest)
            read(values, out[:, place : place + feature.width], first_row)
            place += feature.width

    def _numbers(self, values: Sequence[bytes]) -> Iterator[np.ndarray]:
        return iter(np.frombuffer(b"".join(values), self._record)["data"].T)


def _reader(feature: Feature, element: str, seen: Faults) -> Read:
    match feature.way:
        case Number() | Date():
            return partial(_numbers, feature, seen)
        case Category() as way:
            # By the type in the training rows, as for a single row, which does not say its types.
            return partial(_category, way, encode.CategoryCodes(way, feature.element))
        case Text() as way:
            return partial(_text, way, encode.Words(way))
        case Array() as way:
            return _array(feature.name, way, element, seen)
        case Image() as way:
            return partial(_images, encode.Notes(feature.name, 0, seen), way)


def _numbers(feature: Feature, seen: Faults, values: np.ndarray, out: np.ndarray, first_row: int) -> None:
    notes = encode.Notes(feature.name, first_row, seen)
    if isinstance(feature.way, Number):
        encode.number(feature.way, values, out, notes)
    elif isinstance(feature.way, Date):
        encode.date(feature.way, values, out, notes)


def _category(
    way: Category, codes: encode.CategoryCodes, values: Sequence[str | None], out: np.ndarray, first_row: int
) -> None:
    encode.category(way, codes, values, out)


def _text(
    way: Text, words: encode.Words, values: Sequence[str | None], out: np.ndarray, first_row: int
) -> None:
    encode.text(way, words, values, out)


def _array(name: str, way: Array, element: str, seen: Faults) -> Read:
    is_bytea = element == "bytea"
    source = "=u1" if is_bytea else {"vector": "=f4", "halfvec": "=f4", **NUMPY}[element]
    whole, flat = tuple(way.shape), (math.prod(way.shape),)
    readers = {
        shape: ArrayReader(ArrayForm(name, (), source, shape, is_bytea=is_bytea), way.divide, seen)
        for shape in (whole, flat)
    }
    arrives: tuple[int, ...] | None = None

    def read(values: Sequence[bytes | None], out: np.ndarray, first_row: int) -> None:
        nonlocal arrives
        if arrives is None and not is_bytea:
            # The option `shape` may say what a flat array is.
            arrives = next((shape_of(value) for value in values if value is not None), None)
        readers[flat if arrives == flat else whole].read([values], out, first_row)

    return read


def _images(
    notes: encode.Notes, way: Image, values: Sequence[bytes | None], out: np.ndarray, first_row: int
) -> None:
    for place, data in enumerate(values):
        row = np.array([first_row + place])
        if data is None:
            notes.add(IS_NULL, row)
            continue
        try:
            images.decode(way, data, out[place])
        except images.NoImageError as error:
            notes.add(NO_IMAGE, row, f", which {error}")


def part_of(features: Sequence[Mapping[str, Any]], columns: Sequence[SourceColumn]) -> FeaturePart:
    """Return the input that `describe()` has turned into these features and columns."""
    found = tuple(map(read_feature, features))
    return FeaturePart(FeatureInput(found[0].input, found), tuple(columns))


def describe(part: FeaturePart) -> Mapping[str, Any]:
    """Return a description of an input for JSON, from which `part_of()` makes it again in another process."""
    return {
        "features": [feature.as_json() for feature in part.input.features],
        "columns": [vars(column) for column in part.columns],
    }
