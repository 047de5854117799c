"""Computes the order in which a config visits the segments, from seed, epoch and key alone."""

from __future__ import annotations

import functools

from cerebro_plpy import seeding


def route(seed: int, epoch: int, mst_key: int, segments: int) -> list[int]:
    """Return the segments in the order in which a config visits them in an epoch.

    It is the epoch's seeded permutation, rotated by the config's lane (its key modulo the number of
    segments), so that configs begin on different segments.
    """
    order = _order(seed, epoch, segments)
    lane = mst_key % segments
    return [*order[lane:], *order[:lane]]


# Called for every config whenever a segment is free, while the segment waits.
@functools.lru_cache(maxsize=1024)
def _order(seed: int, epoch: int, segments: int) -> tuple[int, ...]:
    return tuple(seeding.permutation(segments, seed, "route", epoch).tolist())


def step_of(epoch: int, stop: int, segments: int) -> int:
    """Return the step after a visit. Epochs count from 1 and stops from 0; step 0 is the initial state."""
    return (epoch - 1) * segments + stop + 1


def part_of(epoch: int, segment: int, segments: int) -> int:
    """Return the step of one segment's visit in an epoch whose states are averaged.

    It is below zero, because no config continues from the state of this visit alone.
    """
    return -step_of(epoch, segment, segments)


def segment_of(seed: int, epochs_before: int, mst_key: int, step: int, segments: int) -> int:
    """Return the segment whose visit led to a step of a config.

    The config had trained `epochs_before` epochs before the run. A step below zero is that of one segment's
    visit in an averaged epoch.
    """
    epoch, stop = place_of(abs(step), segments)
    return stop if step < 0 else route(seed, epochs_before + epoch, mst_key, segments)[stop]


def step_before(step: int, segments: int, average_from: int | None) -> int:
    """Return the step with which the visit that led to `step` began.

    In an averaged epoch, all visits begin with the last step of the epoch before.
    """
    epoch, _ = place_of(step, segments)
    return (epoch - 1) * segments if average_from is not None and epoch >= average_from else step - 1


def place_of(step: int, segments: int) -> tuple[int, int]:
    """Return the epoch and the stop of the visit that leads to a step."""
    return (step - 1) // segments + 1, (step - 1) % segments
