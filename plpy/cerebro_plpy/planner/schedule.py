"""Which waiting config a free segment takes next, and a simulation of that rule."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cerebro_plpy.planner.routes import route


@dataclass(frozen=True)
class Waiting:
    """A config whose next stop is the segment at hand."""

    mst_key: int
    remaining_seconds: float


def choose(waiting: Iterable[Waiting]) -> int | None:
    """Longest remaining time first; the smaller key among equals, so that a run is easy to follow."""
    best = max(waiting, key=lambda w: (w.remaining_seconds, -w.mst_key), default=None)
    return None if best is None else best.mst_key


@dataclass(frozen=True)
class Simulated:
    makespan: float
    lower_bound: float
    waiting_share: float


def simulate(
    unit_seconds: Sequence[float],
    segments: int,
    epochs: int,
    noise: Callable[[], float] = lambda: 1.0,
    seed: int = 1,
) -> Simulated:
    """Play a run in which config k takes `unit_seconds[k]` (times noise) on each segment."""
    stops = {
        key: [s for epoch in range(1, epochs + 1) for s in route(seed, epoch, key, segments)]
        for key in range(len(unit_seconds))
    }
    done = dict.fromkeys(stops, 0)
    busy_until: list[tuple[float, int, int]] = []
    free, idle = set(range(segments)), set(stops)
    now = work = 0.0
    while True:
        for segment in sorted(free):
            here = [k for k in idle if done[k] < len(stops[k]) and stops[k][done[k]] == segment]
            key = choose(Waiting(k, (len(stops[k]) - done[k]) * unit_seconds[k]) for k in here)
            if key is None:
                continue
            seconds = unit_seconds[key] * noise()
            work += seconds
            heapq.heappush(busy_until, (now + seconds, segment, key))
            free.discard(segment)
            idle.discard(key)
        if not busy_until:
            break
        now, segment, key = heapq.heappop(busy_until)
        done[key] += 1
        free.add(segment)
        idle.add(key)
    longest = max(unit_seconds) * segments * epochs
    lower = max(sum(unit_seconds) * epochs, longest)
    return Simulated(now, lower, 1 - work / (now * segments) if now else 0.0)
