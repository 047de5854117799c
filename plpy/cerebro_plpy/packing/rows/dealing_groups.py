"""Deals rows in groups: a group goes to one segment and into one buffer, unless it is too large for these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from cerebro_plpy.packing.rows.dealing import DealtBuffer, Hand, deal_picked, up
from cerebro_plpy.packing.rows.placing import EVERYWHERE
from cerebro_plpy.packing.rows.sorting import Sorter


@dataclass(frozen=True)
class GroupRows:
    """Rows of one group in one buffer, as positions in the sorted order of all rows."""

    group: int
    places: range


@dataclass(frozen=True)
class GroupBuffer:
    """A buffer with some or all rows of one group, or with all rows of several groups."""

    stretches: Sequence[GroupRows]
    fold: int | None = None

    @property
    def rows(self) -> int:
        return sum(len(one.places) for one in self.stretches)

    @property
    def groups(self) -> list[list[int]]:
        """The groups in the order of their rows, each as its number (from 1) and its number of rows."""
        return [[one.group + 1, len(one.places)] for one in self.stretches]

    @property
    def places(self) -> np.ndarray:
        return np.concatenate(
            [np.arange(p.start, p.stop, p.step) for p in (s.places for s in self.stretches)]
        )


@dataclass(frozen=True)
class GroupDeal:
    """A plan of which segment and buffers get the rows of each group.

    Rows are numbered in sorted order, group by group, and each group is dealt separately. Groups small
    enough for one buffer may share it. If a group already has rows, added rows continue with the next
    segment, in new buffers.
    """

    groups: Sequence[int]
    # The segment of each group, or EVERYWHERE for a group that is dealt to all segments.
    homes: Sequence[int]
    segments: int
    # The largest number of rows per buffer.
    most_rows: int
    # The rows and buffers that each group had before, if rows are appended.
    rows_before: Sequence[int] = ()
    buffers_before: int = 0

    @cached_property
    def rows(self) -> int:
        return sum(self.groups)

    @cached_property
    def starts(self) -> Sequence[int]:
        return [0, *accumulate(self.groups)]

    @cached_property
    def _begun(self) -> Sequence[int]:
        """For each group, the segment that gets its first row if the group is dealt to all segments."""
        before = self.rows_before or [0] * len(self.groups)
        return [rows % self.segments for rows in before]

    def _first(self, group: int, segment: int) -> int:
        """Return the first of a group's rows that a segment gets if the group is dealt to all segments."""
        return (segment - self._begun[group]) % self.segments

    @cached_property
    def _dealt(self) -> Sequence[Sequence[GroupBuffer]]:
        return [self._buffers_of(segment) for segment in range(self.segments)]

    def slices(self, segment: int) -> Sequence[GroupBuffer]:
        """Return the buffers of a segment, in the order of their rows."""
        return self._dealt[segment]

    def _buffers_of(self, segment: int) -> list[GroupBuffer]:
        found: list[GroupBuffer] = []
        shared: list[GroupRows] = []
        filled = 0
        for group, (rows, home) in enumerate(zip(self.groups, self.homes, strict=True)):
            if not rows or home not in (segment, EVERYWHERE):
                continue
            cut = home == EVERYWHERE
            first = self.starts[group] + (self._first(group, segment) if cut else 0)
            step = self.segments if cut else 1
            places = range(first, self.starts[group + 1], step)
            if not places:
                continue
            pieces = min(up(up(rows, step), self.most_rows), len(places))
            if pieces == 1 and not cut:
                if filled + rows > self.most_rows:
                    found.append(GroupBuffer(shared))
                    shared, filled = [], 0
                shared.append(GroupRows(group, places))
                filled += rows
                continue
            if shared:
                # Buffers are in the order of their rows.
                found.append(GroupBuffer(shared))
                shared, filled = [], 0
            bounds = [len(places) * i // pieces for i in range(pieces + 1)]
            found += [GroupBuffer([GroupRows(group, places[a:b])]) for a, b in pairwise(bounds)]
        return [*found, GroupBuffer(shared)] if shared else found

    @property
    def buffers(self) -> int:
        """The largest number of buffers that a segment has."""
        return max(map(len, self._dealt))

    @cached_property
    def buffer_size(self) -> int:
        """The largest number of rows that a buffer has."""
        return max(buffer.rows for own in self._dealt for buffer in own)

    def place(self, segment: int) -> int:
        return segment

    def buffer_id(self, segment: int, number: int) -> int:
        """Return the number that the `number`-th buffer of a segment has in the packed table."""
        return self.buffers_before + segment * self.buffers + number

    @property
    def buffers_after(self) -> int:
        """An upper bound: the number of every buffer in the packed table is below it."""
        return self.buffer_id(self.segments, 0)

    @property
    def segments_of_groups(self) -> list[list[int]]:
        """For each group, the segments that have its rows."""
        every = list(range(self.segments))
        return [every if home == EVERYWHERE else [home] for home in self.homes]

    def groups_of(self, ranks: np.ndarray) -> np.ndarray:
        """Return the group of each row, counted from 0; `ranks` are positions in sorted order."""
        return np.searchsorted(np.array(self.starts), ranks, side="right") - 1

    def of_ranks(self, ranks: np.ndarray) -> np.ndarray:
        """Return the segment of each row; `ranks` are positions in sorted order."""
        starts, homes = np.array(self.starts), np.array(self.homes)
        groups = self.groups_of(ranks)
        dealt = ranks - starts[groups] + np.array(self._begun)[groups]
        return np.where(homes[groups] == EVERYWHERE, dealt % self.segments, homes[groups])

    def bounds(self, segment: int) -> list[int]:
        """Return where a segment's buffers begin and end, as positions among the segment's rows."""
        return [0, *accumulate(buffer.rows for buffer in self.slices(segment))]

    @cached_property
    def _before(self) -> np.ndarray:
        """For each segment and group, the number of rows of earlier groups on that segment."""
        rows, homes = np.array(self.groups), np.array(self.homes)
        cut, begun = homes == EVERYWHERE, np.array(self._begun)
        own = np.array(
            [
                np.where(
                    cut,
                    (rows - (s - begun) % self.segments + self.segments - 1) // self.segments,
                    rows * (homes == s),
                )
                for s in range(self.segments)
            ]
        )
        return own.cumsum(axis=1) - own

    def of_segments(self, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the segment of each row and its position there; `ranks` are positions in sorted order."""
        groups, segments = self.groups_of(ranks), self.of_ranks(ranks)
        step = np.where(np.array(self.homes)[groups] == EVERYWHERE, self.segments, 1)
        within = (ranks - np.array(self.starts)[groups]) // step
        return segments, self._before[segments, groups] + within


class ClassesSeen:
    """A record of the classes that occur among the rows of each group."""

    def __init__(self, groups: int, width: int) -> None:
        self._groups, self._width = groups, width
        self._pairs: list[np.ndarray] = []

    def take(self, groups: Sequence[Sequence[int]], one_hot: np.ndarray) -> None:
        """Record the labels of a buffer's rows; `groups` lists its groups, each with a number of rows."""
        numbers, counts = np.array(groups, np.int64).T
        self.add(np.repeat(numbers - 1, counts), one_hot.argmax(axis=1))

    def add(self, groups: np.ndarray, classes: np.ndarray) -> None:
        """Record the class of each row; `groups` has the group of each row, counted from 0."""
        self.join(groups * self._width + classes)

    def join(self, pairs: np.ndarray) -> None:
        """Record pairs of a group and a class, each encoded as one number as `pairs` returns them."""
        self._pairs.append(np.unique(pairs))

    def pairs(self) -> np.ndarray:
        """Return the pairs of a group and a class that occur, each as one number: group * classes + class."""
        return np.unique(np.concatenate([np.zeros(0, np.int64), *self._pairs]))

    def counts(self) -> list[int]:
        return np.bincount(self.pairs() // self._width, minlength=self._groups).tolist()


def deal(sorter: Sorter, how: GroupDeal) -> Iterator[DealtBuffer]:
    """Yield the buffers of all segments, filled with a sorter's rows in the order of groups and hashes."""
    pick = sorter.picker()
    return _deal_blocks(sorter.blocks(), how) if pick is None else deal_picked(pick, how)


def _deal_blocks(blocks: Iterable[Sequence[np.ndarray]], how: GroupDeal) -> Iterator[DealtBuffer]:
    hands = [
        Hand(segment, [0, *accumulate(buffer.rows for buffer in how.slices(segment))])
        for segment in range(how.segments)
    ]
    rank = 0
    for block in blocks:
        segments = how.of_ranks(np.arange(rank, rank + len(block[0])))
        for segment, hand in enumerate(hands):
            own = segments == segment
            yield from hand.take([column[own] for column in block])
        rank += len(block[0])
