"""In which order a config visits the segments: a function of seed, epoch and key, and of nothing else."""

from __future__ import annotations

import functools

from cerebro_plpy import seeding


def route(seed: int, epoch: int, mst_key: int, segments: int) -> list[int]:
    """One seeded permutation per epoch, rotated by the config's lane so that configs start spread out."""
    order = _order(seed, epoch, segments)
    lane = mst_key % segments
    return [*order[lane:], *order[:lane]]


# Asked for every config whenever a segment is free, while that segment waits.
@functools.lru_cache(maxsize=1024)
def _order(seed: int, epoch: int, segments: int) -> tuple[int, ...]:
    return tuple(seeding.permutation(segments, seed, "route", epoch).tolist())


def step_of(epoch: int, stop: int, segments: int) -> int:
    """Number a config's visits from 1; `epoch` counts from 1, `stop` from 0. Step 0 is the initial state."""
    return (epoch - 1) * segments + stop + 1


def part_of(epoch: int, segment: int, segments: int) -> int:
    """Number the visits of an epoch whose states are averaged: below zero, since no config has come so far
    that it could go on from one of them alone."""
    return -step_of(epoch, segment, segments)


def step_before(step: int, segments: int, average_from: int | None) -> int:
    """The step whose state a visit, or all visits of an epoch whose states are averaged, began with."""
    epoch, _ = place_of(step, segments)
    return (epoch - 1) * segments if average_from is not None and epoch >= average_from else step - 1


def place_of(step: int, segments: int) -> tuple[int, int]:
    """The epoch and stop of a step."""
    return (step - 1) // segments + 1, (step - 1) % segments
