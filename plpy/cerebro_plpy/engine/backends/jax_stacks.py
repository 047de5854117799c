"""Trains one net in many states on JAX, each on rows of its own, as one compiled program.

The states are stacked, and a loop takes one after the other through the same steps as if it were trained
alone: same kernels, same bits. This saves the work around the steps, which for a small net is most of the
work.

The batched form computes each step for `BATCHED_PLACES` states at a time: faster for very small nets, with
other last bits. Its program always has the same number of places, so the bits of a state do not depend on
which and how many other states are in the stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cerebro_plpy.engine.backends import runtime, stacks
from cerebro_plpy.engine.backends.interfaces import Feed, Pace, Tick
from cerebro_plpy.engine.backends.jax_given import numbers, with_given
from cerebro_plpy.engine.backends.stacks import BATCHED_PLACES, Orders, power_of_two


class JaxStack:
    """The states of a bundle on JAX, stacked; a state for which there are no rows stays unchanged."""

    def __init__(
        self, model: Any, variables: Sequence[Any], *, inputs: Sequence[str], rows_of: Any, data: Any
    ) -> None:
        self._model = model
        self._inputs = inputs
        self._groups = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
        self._variables = list(variables)
        self._rows_of = rows_of
        step = with_given(model, inputs)
        self._train = jax.jit(_each(partial(_steps, step, model, data)), donate_argnums=0)
        self._batched = jax.jit(partial(_batched, step, model, data), donate_argnums=0)
        self._test = jax.jit(_each(partial(_tests, model.test_step, model, data)), donate_argnums=0)
        # The order of the metrics says which one decides, and JAX would sort the keys of a dictionary.
        self._names: list[str] = []
        self._values = jax.jit(partial(jax.lax.map, self._metric_values))
        self._paces: dict[Any, Pace] = {}
        self._state: tuple[Any, ...] = ()
        self._given: Any = None
        self._places = 0

    def room(self, count: int, *, batched: bool) -> int:
        return power_of_two(max(count, BATCHED_PLACES if batched else 1))

    def load(self, stacked: Sequence[np.ndarray], optimizers: Sequence[Any]) -> None:
        self._places = len(stacked[0])
        given = np.ones((self._places, len(self._inputs), 2), np.float32)
        known: dict[int, np.ndarray] = {}
        for place, optimizer in enumerate(optimizers):
            if id(optimizer) not in known:
                known[id(optimizer)] = numbers(optimizer, self._inputs)
            given[place] = known[id(optimizer)]
        self._given = settled(given)
        by_variable = {
            id(v): settled(array.astype(v.dtype)) for v, array in zip(self._variables, stacked, strict=True)
        }
        groups = [[by_variable[id(v)] for v in group] for group in self._groups]
        self._state = (*groups, [])
        self.reset_metrics()

    def save(self) -> list[np.ndarray]:
        by_variable = {
            id(variable): array
            for group, arrays in zip(self._groups, self._state[:3], strict=True)
            for variable, array in zip(group, arrays, strict=True)
        }
        return [np.array(by_variable[id(variable)]) for variable in self._variables]

    def clear(self) -> None:
        self._state, self._given = ([], [], [], []), None

    def reset_metrics(self) -> None:
        self._model.reset_metrics()
        fresh = [runtime.to_numpy(variable) for variable in self._model.metrics_variables]
        # NumPy makes the arrays, so that JAX has nothing to compile for them.
        metrics = [settled(np.repeat(a[np.newaxis], self._places, axis=0)) for a in fresh]
        self._state = (*self._state[:3], metrics)

    def train(self, feed: Feed, orders: Orders, tick: Tick, *, batched: bool) -> None:
        if batched:
            units = self._places // BATCHED_PLACES
            self._run(self._batched, feed, orders, tick=tick, what="batched", units=units)
        else:
            self._run(self._train, feed, orders, tick=tick, what="train", units=self._places)

    def test(self, feed: Feed, orders: Orders, tick: Tick) -> None:
        self._run(self._test, feed, orders, tick=tick, what="test", units=self._places)

    def _run(self, program: Any, feed: Feed, orders: Orders, tick: Tick, what: str, units: int) -> None:
        arrays = self._rows_of(feed)
        for some in stacks.batches(orders, self._places):
            order, counts = settled(some.order), settled(some.counts)
            pace = self._paces.setdefault((what, some.order.shape[2]), Pace())
            for first, last in pace.pieces(units, tick):
                state = program(self._state, self._given, arrays, (order, counts), (first, last))
                self._state = jax.block_until_ready(state)

    def results(self) -> Mapping[str, np.ndarray]:
        """Return the values of each metric, with one value for each place of the stack."""
        found = self._values(self._state[3])
        return {name: runtime.to_numpy(value) for name, value in zip(self._names, found, strict=True)}

    def _metric_values(self, metrics: Any) -> list[Any]:
        mapping = zip(self._model.metrics_variables, metrics, strict=True)
        with runtime.keras().StatelessScope(state_mapping=mapping):
            found = self._model.get_metrics_result()
        self._names = list(found)
        return list(found.values())


def settled(array: Any) -> Any:
    """Return the array on JAX's device, and bound to it ("committed").

    JAX compiles a program a second time if an argument is committed in one call and not in another. Arrays
    made of rows in shared memory are committed, too.
    """
    return jax.device_put(array, jax.devices()[0])


def _each(one: Any) -> Any:
    """Return a program that applies `one` to each state of a stack from place `first` to `last` - 1.

    The program's argument `places` is the pair of `first` and `last`.
    """

    def run(stack: Any, given: Any, arrays: Any, batches: Any, places: Any) -> Any:
        (order, counts), (first, last) = batches, places

        def body(place: Any, stack: Any) -> Any:
            state = jax.tree_util.tree_map(lambda array: array[place], stack)
            state = one(state, given[place], arrays, order[place], counts[place])
            return jax.tree_util.tree_map(lambda array, value: array.at[place].set(value), stack, state)

        return jax.lax.fori_loop(first, last, body, stack)

    return run


def _steps(
    step: Any, model: Any, data: Any, state: Any, given: Any, arrays: Any, order: Any, count: Any
) -> Any:
    def body(number: Any, state: Any) -> Any:
        return step(state, given, data(model, *_batch(arrays, order[number])))[1]

    return jax.lax.fori_loop(0, count, body, state)


def _batched(
    step: Any, model: Any, data: Any, stack: Any, given: Any, arrays: Any, batches: Any, parts: Any
) -> tuple[Any, ...]:
    """Train some parts of a stack; the states of each part are computed together.

    Each part has `BATCHED_PLACES` places. `parts` is the number of the first part to train, and the number
    after the last one.
    """
    (order, counts), (first, last), width = batches, parts, BATCHED_PLACES

    def part(number: Any, stack: Any) -> Any:
        cut = partial(jax.lax.dynamic_slice_in_dim, start_index=number * width, slice_size=width)
        own_order, own_counts, own_given = cut(order), cut(counts), cut(given)

        def one_step(batch: Any, state: Any, given: Any, rows: Any, count: Any) -> Any:
            after = step(state, given, data(model, *_batch(arrays, rows)))[1]
            return jax.tree_util.tree_map(lambda new, old: jnp.where(batch < count, new, old), after, state)

        def body(batch: Any, states: Any) -> Any:
            return jax.vmap(partial(one_step, batch))(states, own_given, own_order[:, batch], own_counts)

        states = jax.lax.fori_loop(0, jnp.max(own_counts), body, jax.tree_util.tree_map(cut, stack))
        return jax.tree_util.tree_map(
            lambda array, value: jax.lax.dynamic_update_slice_in_dim(array, value, number * width, 0),
            stack,
            states,
        )

    return jax.lax.fori_loop(first, last, part, stack)


def _tests(
    step: Any, model: Any, data: Any, state: Any, given: Any, arrays: Any, order: Any, count: Any
) -> Any:
    """Measure a state on its batches.

    `given`, the numbers of the optimizer, is not used; it is here since `_each` passes it to training steps.
    """
    trainable, others, optimizer, metrics = state

    def body(number: Any, metrics: Any) -> Any:
        measured = step((trainable, others, metrics), data(model, *_batch(arrays, order[number])))[1]
        return measured[2]

    return trainable, others, optimizer, jax.lax.fori_loop(0, count, body, metrics)


def _batch(arrays: Any, rows: Any) -> Any:
    return jax.tree_util.tree_map(partial(jnp.take, indices=rows, axis=0), arrays)
