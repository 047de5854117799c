"""Decides which segment takes the rows of which group."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

# The most that a segment may have, as a multiple of its share.
UNEVEN = 1.05
# A group with fewer rows is never cut: it would wait longer at each segment than it trains there.
LEAST_CUT = 4096
# In place of a segment: the rows are dealt to all.
EVERYWHERE = -1


def homes(rows: Sequence[int], segments: int, settled: Sequence[int] = ()) -> list[int]:
    """Return the segment of each group, by its rows.

    The largest are placed first, each where the fewest rows are; one that would make a segment too large is
    cut over all of them. The first groups may be `settled`: where a group has rows, it stays.
    """
    found = [*settled, *[0] * (len(rows) - len(settled))]
    if segments == 1:
        return found
    most, on_each = UNEVEN * sum(rows) / segments, 0.0
    there = [0] * segments
    for home, count in zip(settled, rows, strict=False):
        if home == EVERYWHERE:
            on_each += count / segments
        else:
            there[home] += count
    loads = [(load, segment) for segment, load in enumerate(there)]
    heapq.heapify(loads)
    for group in sorted(range(len(settled), len(rows)), key=lambda group: -rows[group]):
        count = rows[group]
        load, segment = loads[0]
        if count >= LEAST_CUT and load + on_each + count > most:
            found[group] = EVERYWHERE
            on_each += count / segments
        else:
            found[group] = segment
            heapq.heapreplace(loads, (load + count, segment))
    return found
