"""Which row goes where: rank r to segment r mod S, and a segment's rows to near-equal buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from .sorting import Pick, Sorter

BUFFER_BYTES = 16 << 20
# One unfinished buffer per segment is in memory while rows are dealt.
ALL_SEGMENTS_BYTES = 128 << 20


@dataclass(frozen=True)
class Deal:
    """How many rows are dealt to how many segments, in how many buffers each.

    Rows that are appended go on where those before them ended: with the next segment and the next buffer.
    """

    rows: int
    segments: int
    buffers: int
    rows_before: int = 0
    buffers_before: int = 0

    @property
    def buffer_size(self) -> int:
        """The most rows that a buffer has."""
        return _up(_up(self.rows, self.segments), self.buffers)

    def place(self, segment: int) -> int:
        """The segment that takes the rows of a share."""
        return (segment + self.rows_before) % self.segments

    def buffer_id(self, segment: int, number: int) -> int:
        """The number of a share's buffer in the packed table."""
        return self.buffers_before + segment * self.buffers + number

    @property
    def buffers_after(self) -> int:
        """Below it are the numbers of all buffers."""
        return self.buffer_id(self.segments, 0)

    def bounds(self, segment: int) -> list[int]:
        """Where a segment's buffers begin and end, in rows of the segment; one without rows has no buffer."""
        rows = _up(self.rows - segment, self.segments)
        buffers = min(self.buffers, rows)
        if not buffers:
            return [0]
        return [rows * i // buffers for i in range(buffers + 1)]


def plan(rows: int, segments: int, row_bytes: int, most_rows: int | None) -> Deal:
    """Choose the number of buffers; `row_bytes` of the widest column, `most_rows` the caller's wish."""
    limit = max(1, min(BUFFER_BYTES, ALL_SEGMENTS_BYTES // segments) // row_bytes)
    per_buffer = min(limit, most_rows or limit)
    return Deal(rows, segments, buffers=_up(_up(rows, segments), per_buffer))


def _up(number: int, divisor: int) -> int:
    """Divide and round up."""
    return (number + divisor - 1) // divisor


@dataclass
class DealtBuffer:
    """The rows of one buffer, column by column; none may be read once the next buffer is asked for."""

    segment: int
    number: int
    column: Callable[[int], np.ndarray]


class _Hand:
    """One segment's buffer in the making."""

    def __init__(self, segment: int, bounds: list[int]) -> None:
        self._segment = segment
        self._sizes = np.diff(bounds).tolist()
        self._number = 0
        self._filled = 0
        self._columns: list[np.ndarray] = []

    def take(self, columns: list[np.ndarray]) -> Iterator[DealtBuffer]:
        """Add rows in order; gives each buffer as it becomes full."""
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
    """Deal rows in the order of their hashes."""
    pick = sorter.picker()
    return deal_blocks(sorter.blocks(), how) if pick is None else deal_picked(pick, how)


def deal_blocks(blocks: Iterable[Sequence[np.ndarray]], how: Deal) -> Iterator[DealtBuffer]:
    """Deal rows that come in order of rank, a block of columns at a time."""
    hands = [_Hand(segment, how.bounds(segment)) for segment in range(how.segments)]
    rank = 0
    for block in blocks:
        for segment, hand in enumerate(hands):
            first = (segment - rank) % how.segments
            yield from hand.take([column[first :: how.segments] for column in block])
        rank += len(block[0])


def deal_picked(pick: Pick, how: Deal) -> Iterator[DealtBuffer]:
    """The same where all rows are in memory: no buffer is put together before it is read."""
    for number in range(how.buffers):
        for segment in range(how.segments):
            bounds = how.bounds(segment)
            if number + 1 < len(bounds):
                first, last = (segment + how.segments * bound for bound in bounds[number : number + 2])
                yield DealtBuffer(segment, number, partial(pick, slice(first, last, how.segments)))
