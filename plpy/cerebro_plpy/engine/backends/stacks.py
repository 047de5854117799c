"""The order of work for many states of one net, each with rows of its own, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cerebro_plpy.engine.backends.interfaces import Feed, Tick
from cerebro_plpy.engine.state import State

# A state that is larger trains no faster in a stack, and a stack of such states takes much memory.
LARGEST_STATE = 256 * 1024
# The bits of the batched form depend on the number of places in its program, which is therefore fixed.
BATCHED_PLACES = 16


@dataclass(frozen=True)
class Orders:
    """The rows of each state of a stack in a pass, in the order of its batches of one size."""

    rows: Sequence[np.ndarray]
    batch_size: int
    # The most rows that a state has in any pass of the visit.
    longest: int
    # Whether code for batches of exactly this size trains each state (`model.has_fixed_batches`).
    fixed: Sequence[bool]


@dataclass(frozen=True)
class Batches:
    """Batches of one size: for each place in the stack rows (places, batches, size), and how many count."""

    order: np.ndarray
    counts: np.ndarray


class Stack(Protocol):
    """An engine's way to run a compiled model in many states."""

    def room(self, count: int, *, batched: bool) -> int:
        """Return the number of places in a stack of this many states."""
        ...

    def load(self, stacked: Sequence[np.ndarray], optimizers: Sequence[Any]) -> None:
        """Load states variable by variable, each with as many places; the first places have optimizers with
        these numbers, if code takes any."""
        ...

    def save(self) -> list[np.ndarray]: ...

    def clear(self) -> None:
        """Let go of all states."""
        ...

    def reset_metrics(self) -> None: ...

    def train(self, feed: Feed, orders: Orders, tick: Tick, *, batched: bool) -> None: ...

    def test(self, feed: Feed, orders: Orders, tick: Tick) -> None: ...

    def results(self) -> Mapping[str, np.ndarray]: ...


def batches(of: Orders, places: int) -> list[Batches]:
    """Cut each order of rows as it would be cut alone: first full batches, then what is left.

    Where a program is compiled for each shape: the numbers of places and batches are powers of two, of which
    as many count as there are. There is room for the longest order.
    """
    orders, size = of.rows, of.batch_size
    lengths = np.array([len(order) for order in orders])
    full = lengths // size
    found = []
    if full.any():
        room = np.zeros((places, power_of_two(of.longest // size) * size), np.int32)
        for place, order in enumerate(orders):
            room[place, : full[place] * size] = order[: full[place] * size]
        found.append(Batches(room.reshape(places, -1, size), _filled(full, places)))
    rest = lengths - full * size
    for left in sorted(set(rest.tolist()) - {0}):
        room = np.zeros((places, 1, left), np.int32)
        chosen = np.flatnonzero(rest == left)
        for place in chosen.tolist():
            room[place, 0] = orders[place][-left:]
        found.append(Batches(room, _filled(rest == left, places)))
    return found


def _filled(counts: np.ndarray, places: int) -> np.ndarray:
    found = np.zeros(places, np.int32)
    found[: len(counts)] = counts
    return found


def power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def stacked(states: Sequence[State], places: int) -> list[np.ndarray]:
    """Return the variables of states, stacked one after the other; the places left over are zeros."""
    first = states[0]
    found = []
    for number, array in enumerate(first.arrays):
        room = np.zeros((places, *array.shape), array.dtype)
        if all(state is first for state in states):
            room[: len(states)] = array
        else:
            for place, state in enumerate(states):
                room[place] = state.arrays[number]
        found.append(room)
    return found
