"""The order in which a config visits the segments: a function of seed, epoch and key, and of nothing else."""

from __future__ import annotations

import functools

from cerebro_plpy import seeding


def route(seed: int, epoch: int, mst_key: int, segments: int) -> list[int]:
    """Return the epoch's seeded permutation, rotated by the config's lane so that starts are spread out."""
    order = _order(seed, epoch, segments)
    lane = mst_key % segments
    return [*order[lane:], *order[:lane]]


# Asked for every config whenever a segment is free, while that segment waits.
@functools.lru_cache(maxsize=1024)
def _order(seed: int, epoch: int, segments: int) -> tuple[int, ...]:
    return tuple(seeding.permutation(segments, seed, "route", epoch).tolist())


def step_of(epoch: int, stop: int, segments: int) -> int:
    """Return a visit's number, from 1; `epoch` counts from 1, `stop` from 0. Step 0 is the initial state."""
    return (epoch - 1) * segments + stop + 1


def part_of(epoch: int, segment: int, segments: int) -> int:
    """Return the number of a visit whose state is averaged.

    It is below zero, since no config continues from such a state alone.
    """
    return -step_of(epoch, segment, segments)


def step_before(step: int, segments: int, average_from: int | None) -> int:
    """Return the step that a visit began with, or that all visits of an epoch with averaging began with."""
    epoch, _ = place_of(step, segments)
    return (epoch - 1) * segments if average_from is not None and epoch >= average_from else step - 1


def place_of(step: int, segments: int) -> tuple[int, int]:
    """Return the epoch and the stop of a step."""
    return (step - 1) // segments + 1, (step - 1) % segments
