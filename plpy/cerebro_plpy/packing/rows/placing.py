"""Decides which segment stores the rows of each group."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

# The largest number of rows on a segment, as a multiple of the mean over all segments.
UNEVEN = 1.05
# A group with fewer rows is never cut: it would wait longer at each segment than it trains there.
LEAST_CUT = 4096
# In place of a segment: the rows are dealt to all.
EVERYWHERE = -1


def homes(rows: Sequence[int], segments: int, settled: Sequence[int] = ()) -> list[int]:
    """Return the segment of each group; `rows` has the number of rows of each group.

    The largest groups are placed first, each on the segment with the fewest rows. A group that would make
    that segment too large is dealt to all segments (EVERYWHERE). `settled` has the segments of the first
    groups if these already have rows, and they stay there.
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
