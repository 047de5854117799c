"""Deals row r of each fold to segment r mod S (of S segments), and a segment's rows to near-equal buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Protocol

import numpy as np

from cerebro_plpy.packing.rows.sorting import Pick, Places, Sorter

BUFFER_BYTES = 16 << 20
# One unfinished buffer per segment is in memory while rows are dealt.
ALL_SEGMENTS_BYTES = 128 << 20


@dataclass(frozen=True)
class Deal:
    """A plan of which rows go to which segment, and into which of its buffers.

    Rows are numbered in sorted order, fold by fold, and each fold is dealt separately. If the packed table
    already has rows, added rows continue with the next segment and the next buffer number.
    """

    rows: int
    segments: int
    # The largest number of buffers that a segment has for one fold.
    per_fold: int
    folds: Sequence[int] = ()
    rows_before: int = 0
    buffers_before: int = 0

    @property
    def _parts(self) -> Sequence[int]:
        return self.folds or (self.rows,)

    @property
    def buffers(self) -> int:
        """The largest number of buffers that a segment has."""
        return self.per_fold * len(self._parts)

    @property
    def buffer_size(self) -> int:
        """The largest number of rows that a buffer has."""
        return up(up(max(self._parts), self.segments), self.per_fold)

    @property
    def starts(self) -> list[int]:
        """The positions in the sorted order of all rows at which the folds begin."""
        return [0, *accumulate(self._parts)][:-1]

    def slices(self, segment: int) -> list[DealtSlice]:
        """Return a segment's buffers, each as positions in the sorted order of all rows; none is empty."""
        found: list[DealtSlice] = []
        for number, (start, rows) in enumerate(zip(self.starts, self._parts, strict=True)):
            here = up(rows - segment, self.segments)
            buffers = min(self.per_fold, here)
            bounds = [here * i // buffers for i in range(buffers + 1)] if buffers else []
            fold = number + 1 if self.folds else None
            for pair in pairwise(bounds):
                first, last = (start + segment + self.segments * bound for bound in pair)
                found.append(DealtSlice(fold, slice(first, last, self.segments)))
        return found

    def place(self, segment: int) -> int:
        """Return the segment of the packed table that stores the rows that this plan deals to `segment`.

        The two differ if rows are added to a table: the first added row goes to the segment after the one of
        the last earlier row.
        """
        return (segment + self.rows_before) % self.segments

    def buffer_id(self, segment: int, number: int) -> int:
        """Return the number that the `number`-th buffer of a segment has in the packed table."""
        return self.buffers_before + segment * self.buffers + number

    @property
    def buffers_after(self) -> int:
        """An upper bound: the number of every buffer in the packed table is below it."""
        return self.buffer_id(self.segments, 0)

    def bounds(self, segment: int) -> list[int]:
        """Return where a segment's buffers begin and end, as positions among the segment's rows."""
        return [0, *accumulate(one.rows for one in self.slices(segment))]

    def of_segments(self, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the segment of each row and its position there; `ranks` are positions in sorted order."""
        starts = np.array(self.starts)
        folds = np.searchsorted(starts, ranks, side="right") - 1
        within = ranks - starts[folds]
        segments = within % self.segments
        # How many rows of earlier folds each segment has.
        before = np.array(
            [
                [0, *accumulate(up(rows - s, self.segments) for rows in self._parts)]
                for s in range(self.segments)
            ]
        )
        return segments, before[segments, folds] + within // self.segments


@dataclass(frozen=True)
class DealtSlice:
    """The rows of one buffer: their fold, and their positions in the sorted order of all rows."""

    fold: int | None
    places: slice
    # The table was not packed in groups.
    groups = None

    @property
    def rows(self) -> int:
        return (self.places.stop - self.places.start) // self.places.step


def plan(rows: int, segments: int, row_bytes: int, most_rows: int | None, folds: Sequence[int] = ()) -> Deal:
    """Return a plan for dealing rows.

    `row_bytes` is a row's size in the widest column. `most_rows` is the largest number of rows per buffer
    that the caller allows.
    """
    per_buffer = most_rows_of(segments, row_bytes, most_rows)
    return Deal(rows, segments, up(up(max(folds or (rows,)), segments), per_buffer), folds)


def most_rows_of(segments: int, row_bytes: int, wish: int | None) -> int:
    """Return the largest number of rows per buffer: `wish`, or what fits in memory if that is less."""
    limit = max(1, min(BUFFER_BYTES, ALL_SEGMENTS_BYTES // segments) // row_bytes)
    return min(limit, wish or limit)


def up(number: int, divisor: int) -> int:
    """Return `number / divisor`, rounded up."""
    return (number + divisor - 1) // divisor


@dataclass
class DealtBuffer:
    """The rows of one buffer; `column` returns a column's values, valid until the next buffer is made."""

    segment: int
    number: int
    column: Callable[[int], np.ndarray]


class Hand:
    """The buffer of one segment that is being filled with rows."""

    def __init__(self, segment: int, bounds: list[int]) -> None:
        self._segment = segment
        self._sizes = np.diff(bounds).tolist()
        self._number = 0
        self._filled = 0
        self._columns: list[np.ndarray] = []

    def take(self, columns: list[np.ndarray]) -> Iterator[DealtBuffer]:
        """Append rows to the segment's buffers in order; yield each buffer when it is full."""
        taken = 0
        while taken < len(columns[0]):
            if not self._columns:
                # Kept for all buffers: fresh memory costs as much as copying into it.
                self._columns = [np.empty((max(self._sizes), c.shape[1]), c.dtype) for c in columns]
            size = self._sizes[self._number]
            count = min(size - self._filled, len(columns[0]) - taken)
            for own, column in zip(self._columns, columns, strict=True):
                own[self._filled : self._filled + count] = column[taken : taken + count]
            taken += count
            self._filled += count
            if self._filled == size:
                full = [own[:size] for own in self._columns]
                yield DealtBuffer(self._segment, self._number, full.__getitem__)
                self._number, self._filled = self._number + 1, 0


def deal(sorter: Sorter, how: Deal) -> Iterator[DealtBuffer]:
    """Yield the buffers of all segments, filled with the rows of a sorter in the order of their hashes."""
    pick = sorter.picker()
    return deal_blocks(sorter.blocks(), how) if pick is None else deal_picked(pick, how)


def deal_blocks(blocks: Iterable[Sequence[np.ndarray]], how: Deal) -> Iterator[DealtBuffer]:
    """Yield the buffers of all segments, filled from blocks of sorted rows; a block is a list of columns."""
    hands = [Hand(segment, how.bounds(segment)) for segment in range(how.segments)]
    starts, rank = [*how.starts, how.rows], 0
    for block in blocks:
        end = rank + len(block[0])
        for start, stop in pairwise(starts):
            rows = slice(max(start, rank), min(stop, end))
            if rows.start >= rows.stop:
                continue
            for segment, hand in enumerate(hands):
                first = rows.start - rank + (segment - (rows.start - start)) % how.segments
                yield from hand.take([column[first : rows.stop - rank : how.segments] for column in block])
        rank = end


class Dealt(Protocol):
    """A plan of which rows are in which buffers of which segment, such as `Deal`."""

    @property
    def segments(self) -> int: ...

    @property
    def buffers(self) -> int: ...

    def slices(self, segment: int) -> Sequence[BufferRows]: ...


class BufferRows(Protocol):
    """The rows of one buffer, as positions in the sorted order of all rows."""

    @property
    def places(self) -> Places: ...


def deal_picked(pick: Pick, how: Dealt) -> Iterator[DealtBuffer]:
    """Yield the buffers of rows that are all in memory; a buffer's rows are copied only when it is read."""
    dealt = [how.slices(segment) for segment in range(how.segments)]
    for number in range(how.buffers):
        for segment, slices in enumerate(dealt):
            if number < len(slices):
                yield DealtBuffer(segment, number, partial(pick, slices[number].places))
