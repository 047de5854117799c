"""Trains on JAX: many batches in one compiled loop, over rows that stay on the device."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cerebro_plpy import threads
from cerebro_plpy.engine.activations.jax_shards import ShardedLoop
from cerebro_plpy.engine.activations.shards import DeviceRoom, Span
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.backends.interfaces import (
    Again,
    Entering,
    Feed,
    Forward,
    Gradient,
    KerasBackend,
    KnownArrays,
    Pace,
    PlainForward,
    ScoreOf,
    Slope,
    Tick,
    unwrap_optimizer,
)
from cerebro_plpy.engine.backends.jax_given import with_given
from cerebro_plpy.engine.backends.jax_metrics import ArrayLoop, pack_batch, pick_rows, release_values
from cerebro_plpy.engine.backends.jax_programs import keep_programs
from cerebro_plpy.engine.backends.jax_stacks import JaxStack, settled
from cerebro_plpy.engine.backends.runtime import Running
from cerebro_plpy.engine.checks.architecture import Shape
from cerebro_plpy.engine.models import forms
from cerebro_plpy.engine.models.data import is_shareable
from cerebro_plpy.programs import find_folder


class Jax(KerasBackend):
    # It compiles a program for each number of rows.
    fixed_rows = True

    def set_up(self, wanted: Running) -> None:
        with threads.no_signals():
            # This call makes JAX's threads.
            jax.devices()
            folder = find_folder(wanted.cache_folder)
            self.not_kept = None if folder is None else keep_programs(folder, wanted.threads)

    def has_gpu(self) -> bool:
        with contextlib.suppress(RuntimeError):  # how JAX says that it knows no such platform
            return bool(jax.devices("gpu"))
        return False

    def make_loop(self, model: Any, variables: list[Any], inputs: Sequence[str], whole: Any) -> JaxLoop:
        return JaxLoop(model, variables, inputs, many_at_once=not _differs_within_a_loop(whole))

    def make_sharded_loop(
        self,
        model: Any,
        variables: list[Any],
        inputs: Sequence[str],
        spans: Sequence[Span],
        room: DeviceRoom,
    ) -> ShardedLoop:
        return ShardedLoop(model, variables, inputs, spans, room)

    def on_host(self) -> contextlib.AbstractContextManager[None]:
        return jax.default_device(jax.devices("cpu")[0])

    def make_stack(
        self, model: Any, variables: list[Any], inputs: Sequence[str], loop: Any
    ) -> JaxStack | None:
        if _differs_within_a_loop(model) or unwrap_optimizer(model.optimizer).use_ema:
            return None
        return JaxStack(model, variables, inputs=inputs, rows_of=_rows_on_device, data=pack_batch)

    def compute_again(self, compute: Again, given: Entering) -> tuple[list[Any], list[Any]]:
        return _again(compute)(given.tensors, given.masks, given.values)

    def to_tensor(self, array: np.ndarray) -> Any:
        return jnp.array(array, copy=True)

    def make_forward(self, model: Any, inputs: Sequence[Shape]) -> Forward:
        return PlainForward(jax.jit(partial(_forward, model)))

    def make_slope(self, model: Any, inputs: Sequence[Shape], score: ScoreOf) -> Callable[[list[Any]], Slope]:
        slope = jax.jit(partial(_slope, model, score))

        def bind(variables: list[Any]) -> Slope:
            def run(batch: list[np.ndarray], given: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
                scores, slopes = slope(variables, batch, given)
                return np.asarray(scores), [np.asarray(one) for one in slopes]

            return run

        return bind

    def make_gradient(self, model: Any, score: ScoreOf) -> Gradient:
        gradient = jax.jit(jax.grad(partial(_mean_score, model, score)))
        split = len(model.trainable_variables)

        def run(variables: list[Any], batch: list[np.ndarray], given: np.ndarray) -> list[np.ndarray]:
            slopes = gradient(variables[:split], variables[split:], batch, given)
            return [np.asarray(one) for one in slopes]

        return run


# JAX compiles for each shape, and Keras' own fit does too: a full batch and the last, smaller one
# are two programs, here and there.

# Found in the names of layers that pass a window over their input, or go through it step by step.
_WINDOWED = ("Conv", "RNN", "LSTM", "GRU")

# Up to this size, rows are copied into arrays that have room for more, so that tables of about as many rows,
# the segments of one table and its folds share their programs.
_COPIED_BYTES = 16 * 2**20
_AWAITED_BYTES = 2**20


class JaxLoop(ArrayLoop):
    """A loop that holds the model's variables as arrays."""

    def __init__(self, model: Any, variables: list[Any], inputs: Sequence[str], many_at_once: bool) -> None:
        super().__init__(model, inputs)
        self._many_at_once = many_at_once
        self._state = _JaxState(model, variables)
        release_values(variables)
        train = with_given(model, inputs)
        self._train_one = jax.jit(train, donate_argnums=0)
        self._train_many = jax.jit(_repeat(model, train), donate_argnums=0)
        self._test_one = jax.jit(partial(_test, model), donate_argnums=0)
        self._test_many = jax.jit(_repeat(model, partial(_test, model)), donate_argnums=0)
        self._paces: dict[Any, Pace] = {}

    def load(self, arrays: Iterable[np.ndarray], known: KnownArrays) -> None:
        self._state.load(arrays, known)

    def save(self, known: KnownArrays) -> list[np.ndarray]:
        return self._state.save(known)

    def finish_pass(self) -> None:
        """Replace weights by their moving average if the optimizer keeps one, as at the end of Keras' fit."""
        optimizer = unwrap_optimizer(self._model.optimizer)
        if not optimizer.use_ema:
            return
        self._state.to_model()
        optimizer.finalize_variable_values(self._model.trainable_weights)
        self._state.from_model()

    def train(self, feed: Feed, order: np.ndarray, batch_size: int, fixed: bool, tick: Tick) -> None:
        self._run(self._train_one, self._train_many, feed, order, batch_size, tick, optimizer=True)

    def count_step_bytes(self, feed: Feed, batch_size: int) -> int | None:
        arrays = (feed.inputs, feed.targets, feed.weights)
        # Shapes alone: there may be fewer rows than a batch has.
        shapes = [
            [jax.ShapeDtypeStruct((batch_size, *one.shape[1:]), one.dtype) for one in each] for each in arrays
        ]
        data = pack_batch(self._model, *shapes)
        program = self._train_one.lower(self._get(True), self._given, data).compile()
        told = program.memory_analysis()
        return None if told is None else int(told.temp_size_in_bytes)

    def test(self, feed: Feed, order: np.ndarray, batch_size: int, tick: Tick) -> None:
        self._run(self._test_one, self._test_many, feed, order, batch_size, tick, optimizer=False)

    def _run(
        self, one: Any, many: Any, feed: Feed, order: np.ndarray, batch_size: int, tick: Tick, optimizer: bool
    ) -> None:
        full = len(order) // batch_size
        if full > 1 and self._many_at_once:
            self._run_many(many, feed, order[: full * batch_size].reshape(full, -1), tick, optimizer)
            order = order[full * batch_size :]
        for first in range(0, len(order), batch_size):
            rows = order[first : first + batch_size]
            data = pack_batch(self._model, *pick_rows(feed, rows))
            _, state = one(self._get(optimizer), self._given, data)
            self._put(state, optimizer)
            tick()

    def _run_many(self, many: Any, feed: Feed, order: np.ndarray, tick: Tick, optimizer: bool) -> None:
        arrays = _rows_on_device(feed)
        rows = jnp.asarray(_with_room(order), jnp.int32)
        pace = self._paces.setdefault((optimizer, order.shape[1]), Pace())
        for first, last in pace.pieces(len(order), tick):
            batches = arrays, rows
            state = many(self._get(optimizer), self._given, batches, first, last)
            self._put(jax.block_until_ready(state), optimizer)

    def _get(self, optimizer: bool) -> tuple[list[Any], ...]:
        return (*self._state.get(optimizer), self.metrics_arrays)

    def _put(self, state: tuple[list[Any], ...], optimizer: bool) -> None:
        *values, self.metrics_arrays = state
        self._state.put(values, optimizer)


class _JaxState:
    """Variables as JAX arrays, in the groups that Keras' steps take."""

    def __init__(self, model: Any, variables: list[Any]) -> None:
        self._model = model
        self._variables = variables
        self._groups = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
        self.trainable: list[Any] = []
        self.non_trainable: list[Any] = []
        self.optimizer: list[Any] = []
        # The arrays of frozen variables at the last save, by the ids of the variables.
        self._kept: dict[int, Any] = {}

    def get(self, optimizer: bool) -> tuple[list[Any], ...]:
        kept = (self.trainable, self.non_trainable)
        return (*kept, self.optimizer) if optimizer else kept

    def put(self, state: Sequence[list[Any]], optimizer: bool) -> None:
        if optimizer:
            self.trainable, self.non_trainable, self.optimizer = state
        else:
            self.trainable, self.non_trainable = state

    def load(self, arrays: Iterable[np.ndarray], known: KnownArrays) -> None:
        held = self._kept | self._by_variable() if known else {}
        self._kept = {}
        by_variable = {
            id(v): held[id(v)] if place in known else _copied(array, v.dtype)
            for place, (v, array) in enumerate(zip(self._variables, arrays, strict=True))
        }
        self.trainable, self.non_trainable, self.optimizer = (
            [by_variable[id(v)] for v in group] for group in self._groups
        )

    def save(self, known: KnownArrays) -> list[np.ndarray]:
        by_variable = self._by_variable()
        self._kept = {id(v): by_variable[id(v)] for n, v in enumerate(self._variables) if n in known}
        # Each array goes when its copy is made: otherwise a large net would be there once more.
        self.trainable, self.non_trainable, self.optimizer = [], [], []
        return [
            known[place] if place in known else np.array(by_variable.pop(id(variable)))
            for place, variable in enumerate(self._variables)
        ]

    def _by_variable(self) -> dict[int, Any]:
        values = (self.trainable, self.non_trainable, self.optimizer)
        return {
            id(variable): array
            for group, arrays in zip(self._groups, values, strict=True)
            for variable, array in zip(group, arrays, strict=bool(arrays))
        }

    def to_model(self) -> None:
        by_variable = self._by_variable()
        for variable in self._variables:
            variable.assign(by_variable[id(variable)])

    def from_model(self) -> None:
        self.load([runtime.to_numpy(variable) for variable in self._variables], {})


def _copied(array: np.ndarray, dtype: Any) -> Any:
    """Return a copy of an array on the device, since the steps write over the buffers that they get."""
    made = settled(jnp.array(array, dtype, copy=True))
    # JAX copies in the background, and a large array must be freed before the next one is copied.
    return jax.block_until_ready(made) if array.nbytes > _AWAITED_BYTES else made


def _differs_within_a_loop(model: Any) -> bool:
    """Return whether XLA may compute the model in another way within a loop.

    On the CPU it does so for convolutions: slower, with other last bits. Recurrent layers, which are loops
    themselves, gain nothing by a loop, so for them True is returned, too.
    """
    names = (type(layer).__name__ for layer in model._flatten_layers())
    return any(part in name for name in names for part in _WINDOWED)


def _repeat(model: Any, step: Any) -> Any:
    """Return a function that runs `step`, a step of Keras, over the batches `first` to `last` - 1.

    `first` and `last` are arguments of the function.
    """

    def run(state: Any, given: Any, batches: Any, first: Any, last: Any) -> Any:
        arrays, order = batches

        def body(number: Any, state: Any) -> Any:
            rows = order[number]
            batch = jax.tree_util.tree_map(functools.partial(jnp.take, indices=rows, axis=0), arrays)
            return step(state, given, pack_batch(model, *batch))[1]

        return jax.lax.fori_loop(first, last, body, state)

    return run


def _test(model: Any, state: Any, given: Any, data: Any) -> Any:
    """Run Keras' test step; `given`, the numbers of the optimizer, is not used."""
    return model.test_step(state, data)


def _rows_on_device(feed: Feed) -> tuple[list[Any], list[Any], list[Any]]:
    copies = sum(array.nbytes for array in feed.inputs) <= _COPIED_BYTES
    inputs = feed.dataset.derived("jax", lambda: _inputs(feed, copies=copies))
    return inputs, *feed.dataset.derived(("jax", feed.key), partial(_labels, feed, copies=copies))


def _inputs(feed: Feed, *, copies: bool) -> list[Any]:
    """Return the inputs on the device; with `copies`, as copies that have room for more rows.

    Arrays that need no further room are not copied if the device can use their memory.
    """
    roomy = [_with_room(array) if copies else array for array in feed.inputs]
    return [
        _array(array) if len(room) == len(array) else settled(room)
        for room, array in zip(roomy, feed.inputs, strict=True)
    ]


def _with_room(array: np.ndarray) -> np.ndarray:
    """Return the array with zero rows added, so that arrays of similar lengths share a program.

    Between a power of two and the next, only eight lengths occur.
    """
    rows = len(array)
    step = 2 ** max(0, rows.bit_length() - 4)
    room = np.zeros((-(-rows // step) * step, *array.shape[1:]), array.dtype)
    room[:rows] = array
    return room


def _array(array: np.ndarray) -> Any:
    """Return an array on the device, without a copy if the device uses this process's memory."""
    if is_shareable(array) and jax.default_backend() == "cpu":
        return jnp.from_dlpack(array)
    return jnp.asarray(array)


def _labels(feed: Feed, *, copies: bool) -> tuple[list[Any], list[Any]]:
    targets, weights = (
        [settled(_with_room(array)) if copies else jnp.asarray(array) for array in arrays]
        for arrays in (feed.targets, feed.weights)
    )
    return targets, weights


def _again(compute: Again) -> Callable[..., Any]:
    """Return `compute` as a function that JAX computes again in the backward pass.

    On processors, XLA removes the barriers of `jax.checkpoint`, finds that both computations are equal, and
    keeps the results of the first. So the inputs of the second are multiplied by a one that is computed from
    the gradients, and so is known only in the backward pass.
    """

    def first(tensors: list[Any], masks: list[Any], values: list[Any]) -> tuple[list[Any], list[Any]]:
        return compute(Entering(tensors, masks, values))

    def forward(*given: Any) -> Any:
        return first(*given), given

    def backward(given: Any, slopes: Any) -> Any:
        tensors, masks, values = given
        due = slopes[0][0].ravel()[0]
        one = jnp.where(due == due, 1.0, jnp.nan)
        tensors = [x * one.astype(x.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in tensors]
        _, pull = jax.vjp(lambda *again: first(*again)[0], tensors, masks, values)
        return pull(slopes[0])

    again = jax.custom_vjp(first)
    again.defvjp(forward, backward)
    return again


def _forward(model: Any, variables: list[Any], batch: list[Any]) -> list[Any]:
    split = len(model.trainable_variables)
    found, _ = model.stateless_call(
        variables[:split], variables[split:], forms.pack(model, batch), training=False
    )
    return runtime.keras().tree.flatten(found)


def _slope(model: Any, score: ScoreOf, variables: list[Any], batch: list[Any], given: Any) -> Any:
    def total(batch: list[Any]) -> tuple[Any, Any]:
        scores = score(_forward(model, variables, batch)[0], given)
        # Rows do not affect each other: the slopes of the sum are the slopes of each row.
        return scores.sum(), scores

    (_, scores), slopes = jax.value_and_grad(total, has_aux=True)(batch)
    return scores, slopes


def _mean_score(
    model: Any, score: ScoreOf, trainable: list[Any], others: list[Any], batch: list[Any], given: Any
) -> Any:
    return score(_forward(model, [*trainable, *others], batch)[0], given).mean()


make = Jax
