"""Packs one segment's share of the rows, in the segment's process: reads, sorts and deals them.

Before the rows are dealt, only their hashes leave the segment; the coordinator orders all rows by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

import numpy as np

from cerebro_plpy import memory
from cerebro_plpy.cluster.protocol import DealRows, ExpectRows, OpenRows
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.packing.columns import featured
from cerebro_plpy.packing.columns.featured import FeaturePart
from cerebro_plpy.packing.columns.sources import SourcePart
from cerebro_plpy.packing.dividing.parts import FOLD, PartsRead
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.rows import dealing
from cerebro_plpy.packing.rows.dealing_groups import ClassesSeen, GroupDeal
from cerebro_plpy.packing.rows.labels import one_hot
from cerebro_plpy.packing.rows.reading import (
    Column,
    PackedPart,
    batch_rows,
    fields,
    hasher_of,
    open_column,
    read_batch,
)
from cerebro_plpy.packing.rows.sorting import Sorter
from cerebro_plpy.store.packed.packed import SourceColumn

# A row as a scan passes it: labels in UTF-8, other fields as they are.
Fields = Sequence[bytes | None]
Piece = tuple[int, int, bytes, list[bytes]]
# The field that says in which part a row is has one form, for folds and for groups.
PART = FOLD


def describe(part: PackedPart, shape: Sequence[int] | None, divisor: float) -> Mapping[str, Any]:
    """Return a description of a packed column as JSON, from which `columns_of` makes the `Column`."""
    if isinstance(part, FeaturePart):
        return {**featured.describe(part), "shape": shape, "divisor": divisor}
    return {**asdict(part), "shape": shape, "divisor": divisor}


def _part(described: Mapping[str, Any]) -> PackedPart:
    columns = tuple(SourceColumn(**column) for column in described["columns"])
    if "features" in described:
        return featured.part_of(described["features"], columns)
    return SourcePart(described["name"], columns, described["kind"])


def columns_of(asked: OpenRows | ExpectRows, sample: Sequence[bytes | None], seen: Faults) -> list[Column]:
    """Return the packed columns that a message describes; a sample value of each shows its shape."""
    return [
        open_column(
            part=_part(d),
            sample=value,
            shape=d["shape"],
            divisor=d["divisor"],
            seed=asked.seed,
            seen=seen,
        )
        for d, value in zip(asked.columns, sample, strict=True)
    ]


def decoded(
    batch: Sequence[Fields], columns: Sequence[Column], *, in_parts: bool = False
) -> list[Sequence[Any]]:
    """Return the fields of a batch, by column, with texts decoded.

    With `in_parts`, the last field says in which fold or group a row is.
    """
    expressions = [*fields([column.part for column in columns]), *([PART] if in_parts else [])]
    found = zip(batch, expressions, strict=True)
    return [
        tuple(None if value is None else value.decode() for value in values) if how.is_text else values
        for values, how in found
    ]


class Taker(Protocol):
    """An object that receives rows from a scan."""

    def take(self, fields: Fields) -> None: ...

    def close(self) -> None: ...


class RowShare:
    """The rows that this process has received from a scan, to be sorted and dealt to buffers."""

    def __init__(self, asked: OpenRows, sample: Sequence[bytes | None]) -> None:
        self.faults = Faults()
        self.columns = columns_of(asked, sample, self.faults)
        self._batch = batch_rows({str(n): value for n, value in enumerate(sample)}, self.columns)
        self._sorter = Sorter([column.stored for column in self.columns], asked.memory, self._batch)
        self._hasher = hasher_of(self.columns, asked.seed)
        self.parts = PartsRead(asked.parts) if asked.parts else None
        self._waiting: list[Fields] = []
        self.rows = 0
        self._deal: Iterator[Piece] = iter(())
        self._classes: ClassesSeen | None = None

    def take(self, fields: Fields) -> None:
        self._waiting.append(fields)
        if len(self._waiting) == self._batch:
            self._read()

    def _read(self) -> None:
        batch = list(zip(*self._waiting, strict=True))
        read_batch(
            values=decoded(batch, self.columns, in_parts=self.parts is not None),
            columns=self.columns,
            sorter=self._sorter,
            hasher=self._hasher,
            before=self.rows,
            seen=self.faults,
            parts=self.parts,
        )
        self.rows += len(self._waiting)
        self._waiting.clear()

    def hashes(self) -> bytes:
        """Return the hashes of all rows received, in sorted order, as bytes."""
        if self._waiting:
            self._read()
        return self._sorter.hashes().tobytes()

    def labels(self) -> list[list[str | None] | None]:
        return [None if c.classes is None else c.classes.labels for c in self.columns]

    def deal(self, asked: DealRows, ranks: np.ndarray) -> None:
        """Prepare `pieces()` to deal the rows; `ranks` are their places among the rows of all segments."""
        how = GroupDeal(**asked.deal) if asked.grouped else dealing.Deal(**asked.deal)
        encoders = [
            _Encoder(column, places, width)
            for column, places, width in zip(self.columns, asked.places, asked.widths, strict=True)
        ]
        if isinstance(how, GroupDeal) and encoders[0].width:
            self._classes = ClassesSeen(len(how.groups), encoders[0].width)
        self._deal = _pieces(self._sorter, how, asked.keys, encoders, ranks, self._classes)

    def pieces(self) -> Iterator[Piece]:
        yield from self._deal

    def classes_seen(self) -> bytes:
        """Return the pairs of group and class among the rows dealt, as bytes; no bytes without groups."""
        return b"" if self._classes is None else self._classes.pairs().astype("<i8").tobytes()

    def close(self) -> None:
        self._sorter.close()


class _Encoder:
    """An encoder of a column's values into the bytes of the packed table."""

    def __init__(self, column: Column, places: Sequence[int] | None, width: int | None) -> None:
        self._places = None if places is None else np.array(places, np.int64)
        self.width = width or 0

    def encode(self, array: np.ndarray) -> bytes:
        if self._places is not None:
            array = one_hot(self._places[array[:, 0]], self.width)
        return array.tobytes()

    def classes(self, array: np.ndarray) -> np.ndarray:
        """Return the class number of each label."""
        return array.argmax(axis=1) if self._places is None else self._places[array[:, 0]]


class _Gathered:
    """The rows gathered so far for one buffer of one segment, with their places in the buffer."""

    def __init__(self) -> None:
        self.buffer = -1
        self.places: list[np.ndarray] = []
        self.columns: list[list[np.ndarray]] = []

    def piece(self, key: int, first_buffer: int, encoders: Sequence[_Encoder]) -> Piece:
        columns = [np.concatenate(arrays) for arrays in zip(*self.columns, strict=True)]
        fields = [encoder.encode(array) for encoder, array in zip(encoders, columns, strict=True)]
        return key, first_buffer + self.buffer, np.concatenate(self.places).astype("<i4").tobytes(), fields


def _pieces(
    sorter: Sorter,
    how: dealing.Deal | GroupDeal,
    keys: Sequence[int],
    encoders: Sequence[_Encoder],
    ranks: np.ndarray,
    seen: ClassesSeen | None,
) -> Iterator[Piece]:
    """Yield pieces, each with this process's rows of one buffer.

    `ranks` are the places of its rows in the order of all segments' rows. They rise, so a segment's piece is
    complete when a row comes for the segment's next buffer."""
    bounds = [np.array(how.bounds(segment)) for segment in range(how.segments)]
    keys = [keys[how.place(segment)] for segment in range(how.segments)]
    gathered = [_Gathered() for _ in keys]
    done = 0
    for block in sorter.blocks():
        own = ranks[done : done + len(block[0])]
        done += len(own)
        if seen is not None and isinstance(how, GroupDeal):
            seen.add(how.groups_of(own), encoders[0].classes(block[0]))
        segments, places = how.of_segments(own)
        for segment, key in enumerate(keys):
            rows = np.flatnonzero(segments == segment)
            positions = places[rows]
            buffers = np.searchsorted(bounds[segment], positions, side="right") - 1
            for buffer in np.unique(buffers):
                now = gathered[segment]
                if now.buffer != buffer:
                    if now.buffer >= 0:
                        yield now.piece(key, how.buffer_id(segment, 0), encoders)
                    now = gathered[segment] = _Gathered()
                    now.buffer = int(buffer)
                these = buffers == buffer
                now.places.append(positions[these] - bounds[segment][buffer])
                now.columns.append([column[rows[these]] for column in block])
    for segment, (key, last) in enumerate(zip(keys, gathered, strict=True)):
        if last.buffer >= 0:
            yield last.piece(key, how.buffer_id(segment, 0), encoders)


def join(widths: Sequence[int], places: Sequence[bytes], fields: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Join the pieces of one buffer; return the bytes of each column.

    `widths` has the bytes of a row in each column. `places` says where the rows of a piece are in the buffer.
    """
    order = np.argsort(np.concatenate([np.frombuffer(place, "<i4") for place in places]))
    joined = []
    for number, width in enumerate(widths):
        data = np.frombuffer(b"".join(piece[number] for piece in fields), np.uint8)
        joined.append(data.reshape(-1, width)[order].tobytes())
    return joined


class _Takers(dict[str, Taker]):
    """The takers that wait for rows of a scan, by ticket."""


T = TypeVar("T", bound=Taker)


def expect(ticket: str, taker: Taker) -> None:
    """Set the taker that receives the rows of the scan with this ticket; close all other takers."""
    takers = memory.get_instance(_Takers)
    for other in list(takers):
        close(other)
    takers[ticket] = taker


def find_taker(ticket: str, kind: type[T]) -> T:
    taker = memory.get_instance(_Takers).get(ticket)
    if not isinstance(taker, kind):
        raise _unexpected()
    return taker


def take_row(ticket: str, fields: Fields) -> int:
    """Pass a row of a scan to the taker with this ticket; return 1, so that the statement can count rows.

    Raise an error if no taker waits for it.
    """
    taker = memory.get_instance(_Takers).get(ticket)
    if taker is None:
        raise _unexpected()
    taker.take(fields)
    return 1


def _unexpected() -> CerebroError:
    return CerebroError(
        "no rows are expected in this process",
        detail="This function is for the extension's own use.",
        sqlstate=WRONG_STATE,
    )


def close(ticket: str) -> None:
    """Close the taker with this ticket, if there is one, and drop its rows."""
    taker = memory.get_instance(_Takers).pop(ticket, None)
    if taker is not None:
        taker.close()
