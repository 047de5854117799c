"""Stacks many states of one net, and cuts the rows of each state into batches."""

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
    """The rows of each state of a stack for one pass, in the order in which batches take them."""

    rows: Sequence[np.ndarray]
    batch_size: int
    # The most rows that a state has in any pass of the visit.
    longest: int
    # Whether code for batches of exactly this size trains each state (`model.has_fixed_batches`).
    fixed: Sequence[bool]


@dataclass(frozen=True)
class Batches:
    """Batches of one size, for all places of a stack.

    `order` has the index of each row, in the shape (places, batches, size). `counts` says how many of these
    batches each place has; the remaining ones only fill the array.
    """

    order: np.ndarray
    counts: np.ndarray


class Stack(Protocol):
    """The interface by which an engine runs a compiled model in many states at once.

    Each state has a place in the stack. In the batched form, a state may get other bits than if it trained
    alone.
    """

    def room(self, count: int, *, batched: bool) -> int:
        """Return how many places a stack of `count` states needs; if `batched`, in the batched form."""
        ...

    def load(self, stacked: Sequence[np.ndarray], optimizers: Sequence[Any]) -> None:
        """Load stacked states: for each variable, an array with a value for each place.

        `optimizers` are the optimizers of the first places. Their numbers are used if the compiled code takes
        any.
        """
        ...

    def save(self) -> list[np.ndarray]: ...

    def clear(self) -> None:
        """Drop all states, to free their memory."""
        ...

    def reset_metrics(self) -> None: ...

    def train(self, feed: Feed, orders: Orders, tick: Tick, *, batched: bool) -> None: ...

    def test(self, feed: Feed, orders: Orders, tick: Tick) -> None: ...

    def results(self) -> Mapping[str, np.ndarray]: ...


def batches(of: Orders, places: int) -> list[Batches]:
    """Return the batches of each state as if it trained alone: full batches, then the remaining rows.

    Since a program is compiled for each shape, the numbers of places and batches are powers of two, with room
    for the longest order. `Batches.counts` says how many batches of a place are real.
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
    """Return for each variable an array of its values in all states; the places left over are zeros."""
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
