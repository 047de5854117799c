"""Compiled models: one for all configs that differ only in the values of variables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cerebro_plpy import memory
from cerebro_plpy.engine import slots
from cerebro_plpy.engine import state as states
from cerebro_plpy.engine.activations import recompute
from cerebro_plpy.engine.activations.shards import DeviceRoom
from cerebro_plpy.engine.backends import runtime, stacks
from cerebro_plpy.engine.backends.interfaces import Feed, Tick
from cerebro_plpy.engine.backends.stacks import Orders, Stack
from cerebro_plpy.engine.checks import architecture, calls, lora
from cerebro_plpy.engine.models import forms, frozen, sizing
from cerebro_plpy.engine.models.data import Block, ClassWeights, Dataset, batched
from cerebro_plpy.engine.state import Frozen, State
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib import recomputed
from cerebro_plpy.madlib.inputs import inputs_of

if TYPE_CHECKING:
    from cerebro_plpy.madlib.params import CompileParams


# Which layers are computed again in the backward pass: none, all that can be, or those named.
Recomputed: TypeAlias = bool | tuple[str, ...]
# A session may live for days, and keeps so many models; a run with more compiles some of them again.
MOST_COMPILED = 64
# The most optimizers that a compiled model keeps, for configs that differ in their numbers.
MOST_OPTIMIZERS = 256


class _CompiledModels(dict[tuple[str, str, Recomputed, DeviceRoom | None], "CompiledModel"]):
    """Compiled models by architecture and parameters, in the order in which they were compiled."""


def compiled(
    architecture_json: str,
    params: CompileParams,
    again: Recomputed = False,
    room: DeviceRoom | None = None,
) -> CompiledModel:
    """Return this process's compiled model for an architecture and parameters; compile it if needed.

    `again` says which layers are computed again in the backward pass, `room` how much the device may hold.
    """
    code = params.compile_key(inputs_of(params, runtime.backend(), architecture_json))
    key = (architecture_json, code, again, room)
    make = partial(CompiledModel, architecture_json, params, again=again, room=room)
    return memory.kept(memory.get_instance(_CompiledModels), key, MOST_COMPILED, make)


def again_of(asked: bool | Sequence[str]) -> Recomputed:
    """Return the value of a run's option `recompute`, with a tuple of names in place of a list."""
    return asked if isinstance(asked, bool) else tuple(asked)


def forget() -> None:
    """Drop every compiled model of this process, to free its memory."""
    memory.get_instance(_CompiledModels).clear()


class CompiledModel:
    """A model whose variables are set from a config's state before each visit.

    `part`, if given, is a pair: a part of a model, which is compiled, and the whole model. States of the part
    are made from states of the whole (`cut.py`).
    """

    def __init__(
        self,
        architecture_json: str,
        params: CompileParams,
        part: tuple[Any, Any] | None = None,
        again: Recomputed = False,
        room: DeviceRoom | None = None,
    ) -> None:
        self.architecture_json, self.again, self.room = architecture_json, again, room
        spans = () if room is None else sizing.shards_of(architecture_json, params, room)
        self._is_sharded = len(spans) > 1
        with runtime.generators_kept(), self._where_it_fits():
            model, whole = part or (architecture.build(architecture_json), None)
            if again:
                recompute.apply(model, None if again is True else again, recomputed.kept(architecture_json))
            self._model = _compiled(model, params)
        self.forms = forms.of_model(self._model, params)
        forms.build_metrics(self._model, self.forms)
        self.layout = _StateLayout(self._model)
        self._starts_blank = self.layout.starts_blank(calls.optimizer(params.optimizer))
        self._inputs = inputs_of(params, runtime.backend(), architecture_json)
        self._params = params
        self._optimizers: dict[str, Any] = {}
        backend, variables = runtime.get_keras_backend(), self.layout.variables
        if room is not None and self._is_sharded:
            self._loop = backend.make_sharded_loop(self._model, variables, self._inputs, spans, room)
        else:
            self._loop = backend.make_loop(self._model, variables, self._inputs, whole or self._model)
        # The digest of the frozen variables that the loop holds.
        self._held: str | None = None

    def _where_it_fits(self) -> AbstractContextManager[None]:
        """Return a context in which Keras makes variables in the host's memory if the model is in shards."""
        return runtime.get_keras_backend().on_host() if self._is_sharded else nullcontext()

    def initial_state(self, params: CompileParams, seed: int, weights: bytes | None) -> State:
        """Return the state of a new model with this seed, and with `weights` if they are given."""
        with runtime.generators_kept(), self._where_it_fits():
            runtime.seed_generators(seed)
            state = self._blank_state(params) if self._starts_blank else self._built_state(params)
        if weights is not None:
            _set_weights(state, weights, self.layout.added)
            slots.copy_weights(state, range(len(state.names)))
        state.freeze(self.layout.frozen)
        return state

    def started(self, state: State, weights: bytes) -> State:
        """Return a copy of a state with the given weights, which shares no frozen variables with others."""
        made = replace(states.whole(state), arrays=list(state.arrays))
        _set_weights(made, weights, self.layout.added)
        slots.copy_weights(made, range(len(made.names)))
        return made

    def _built_state(self, params: CompileParams) -> State:
        layout = _StateLayout(_compiled(architecture.build(self.architecture_json), params))
        return layout.state([runtime.to_numpy(variable) for variable in layout.variables])

    def _blank_state(self, params: CompileParams) -> State:
        """Return an initial state without compiling a model.

        Keras draws the weights from seeds, and the variables that the optimizer adds are zeros.
        """
        model, optimizer = architecture.build(self.architecture_json), calls.optimizer(params.optimizer)
        found = [runtime.to_numpy(variable) for variable in (*model.variables, *optimizer.variables)]
        rest = self.layout.variables[len(found) :]
        return self.layout.state([*found, *(np.zeros(v.shape, v.dtype) for v in rest)])

    def train(
        self,
        state: State,
        passes: Iterable[Iterable[Block]],
        batch_size: int,
        class_weight: ClassWeights,
        tick: Tick,
        rows: int | None = None,
        params: CompileParams | None = None,
        moves: bool = False,
    ) -> tuple[State, dict[str, float]]:
        """Train a state on the blocks of each pass; return the new state and the metrics of the last pass.

        `params` are the parameters of the state's config, if this model was perhaps compiled for another
        config. With `moves`, the given state loses its arrays, which saves memory. `rows` is the number of
        rows of each pass. Without it, TensorFlow may give other bits than Keras' fit if all batches are full.
        """
        fixed_from_start, fixed = _fixed_batch(state, rows, batch_size)
        self._load(state, moves=moves)
        if self._inputs:
            self._loop.give(self._optimizer(params or self._params))
        for blocks in passes:
            self._loop.start_pass()
            for block in batched(blocks, batch_size):
                feed = self._feed(block.dataset, class_weight)
                self._loop.train(feed, block.order, batch_size, fixed, tick)
            self._loop.finish_pass()
        trained = self.layout.state(self._loop.save(state.known), state.frozen)
        trained.fixed_batch = fixed_from_start
        self._held = state.frozen and state.frozen.digest
        return trained, self._results()

    def _load(self, state: State, *, moves: bool) -> None:
        """Load a state into the loop; with `moves`, the state loses its arrays.

        Frozen variables that the loop already holds are not loaded again, unless earlier work was broken off.
        """
        held, self._held = self._held, None
        known = state.frozen is not None and held == state.frozen.digest
        leaves_much = moves and state.nbytes > memory.LARGE_BYTES
        self._loop.load(state.take_arrays() if moves else state.arrays, state.known if known else {})
        if leaves_much:
            memory.trim()

    @cached_property
    def stack(self) -> StackedModel | None:
        """The model in a form that trains many states at once; None if this would give them other bits."""
        made = runtime.get_keras_backend().make_stack(
            self._model, self.layout.variables, self._inputs, self._loop
        )
        if made is None:
            return None
        optimizer = self._optimizer if self._inputs else None
        return StackedModel(made, self._feed, self.layout.state, optimizer, self._hold_nothing)

    def _hold_nothing(self) -> None:
        """Forget which frozen variables the loop holds, since a stack loads other states into the model."""
        self._held = None

    def _optimizer(self, params: CompileParams) -> Any:
        """Return an optimizer with the numbers of a config, from a cache, as making it takes some time."""
        make = partial(calls.optimizer, params.optimizer)
        return memory.kept(self._optimizers, repr(params.optimizer), MOST_OPTIMIZERS, make)

    def evaluate(
        self, state: State, blocks: Iterable[Block], batch_size: int, tick: Tick, moves: bool = False
    ) -> list[np.ndarray]:
        """Return the raw variables of loss and metrics over the blocks; `merge` makes values of them.

        With `moves`, a large state has lost its arrays if the evaluation fails.
        """
        moves = moves and state.nbytes > memory.LARGE_BYTES
        self._load(state, moves=moves)
        self._loop.reset_metrics()
        for block in batched(blocks, batch_size):
            self._loop.test(self._feed(block.dataset, None), block.order, batch_size, tick)
        metrics = self._loop.metrics()
        if moves:
            state.arrays[:] = self._loop.save(state.known)
        self._held = state.frozen and state.frozen.digest
        return metrics

    def count_step_bytes(self, rows: Dataset, batch_size: int) -> int | None:
        """Return the bytes that a step takes beside states and rows; None if the engine does not say.

        The loop must hold a state.
        """
        return self._loop.count_step_bytes(self._feed(rows, None), batch_size)

    def merge(self, parts: list[list[np.ndarray]]) -> dict[str, float]:
        """Return loss and metrics by name, from the raw variables that `evaluate` returned per segment."""
        sums = [
            np.asarray(np.sum(np.stack(arrays), axis=0, dtype=np.float64))
            for arrays in zip(*parts, strict=True)
        ]
        self._loop.set_metrics(sums)
        return self._results()

    def _feed(self, dataset: Dataset, class_weight: ClassWeights) -> Feed:
        targets = [dataset.target(number, form) for number, form in enumerate(self.forms)]
        weights = dataset.sample_weights(class_weight)
        named = class_weight and tuple(tuple(sorted((of or {}).items())) for of in class_weight)
        return Feed(dataset, targets, weights, (tuple(self.forms), named))

    def _results(self) -> dict[str, float]:
        found = self._loop.results()
        return {name: float(runtime.to_numpy(value).mean()) for name, value in found.items()}


class StackedModel:
    """A compiled model that trains many states at once, each on rows of its own."""

    def __init__(
        self,
        stack: Stack,
        feed: Callable[[Dataset, ClassWeights], Feed],
        state: Callable[[list[np.ndarray], Frozen | None], State],
        optimizer: Callable[[CompileParams], Any] | None,
        begin: Callable[[], None],
    ) -> None:
        self._stack, self._feed, self._state, self._optimizer = stack, feed, state, optimizer
        self._begin = begin
        self._frozen: list[Frozen | None] = []
        # Whether each form gave the right bits in its trial, by the facts that the trial depends on.
        self.tried: dict[object, bool] = {}

    @contextmanager
    def loaded(
        self, states: Sequence[State], params: Sequence[CompileParams], *, batched: bool
    ) -> Iterator[None]:
        """Load states, each with the parameters of its config; drop them at the end of the `with` block."""
        self._begin()
        self._frozen = [state.frozen for state in states]
        places = self._stack.room(len(states), batched=batched)
        self._stack.load(stacks.stacked(states, places), self._optimizers(params))
        try:
            yield
        finally:
            self._frozen = []
            self._stack.clear()

    def _optimizers(self, params: Sequence[CompileParams]) -> list[Any]:
        """Return an optimizer for each state; an empty list if its numbers are constants in the program.

        States of groups share the optimizer of their config.
        """
        if self._optimizer is None:
            return []
        made = {key: self._optimizer(each) for key, each in {id(each): each for each in params}.items()}
        return [made[id(each)] for each in params]

    def states(self, count: int) -> list[State]:
        """Return the first `count` states."""
        arrays = self._stack.save()
        return [
            self._state([array[place].copy() for array in arrays], self._frozen[place])
            for place in range(count)
        ]

    def train(
        self, dataset: Dataset, orders: Orders, class_weight: ClassWeights, tick: Tick, *, batched: bool
    ) -> None:
        """Train each state in one pass over its rows."""
        self._stack.reset_metrics()
        self._stack.train(self._feed(dataset, class_weight), orders, tick, batched=batched)

    def test(self, dataset: Dataset, rows: Sequence[np.ndarray], batch_size: int, tick: Tick) -> None:
        self._stack.reset_metrics()
        orders = Orders(rows, batch_size, max(map(len, rows)), [False] * len(rows))
        self._stack.test(self._feed(dataset, None), orders, tick)

    def results(self, count: int) -> list[dict[str, float]]:
        """Return the metrics of the first `count` states."""
        found = self._stack.results()
        return [
            {name: float(values[place].mean()) for name, values in found.items()} for place in range(count)
        ]


class _StateLayout:
    """The layout of a model's variables in a state."""

    def __init__(self, model: Any) -> None:
        own, extra = list(model.variables), list(model.optimizer.variables)
        weights = {id(variable): number for number, variable in enumerate(model.weights)}
        hidden = runtime.get_keras_backend().own_variables()
        self.variables = own + extra + hidden
        self.names = [variable.path for variable in self.variables]
        self.kinds = [states.WEIGHT if id(v) in weights else states.OTHER for v in own]
        self.kinds += [states.OPTIMIZER] * len(extra) + [states.OTHER] * len(hidden)
        position = {id(variable): number for number, variable in enumerate(own)}
        self.weight_order = [position[id(variable)] for variable in model.weights]
        unchanged = frozen.frozen(model)
        self.added = lora.added(lora.adapters(model))
        self.frozen = [n for n, variable in enumerate(self.variables) if id(variable) in unchanged]
        self._step = next((n for n, v in enumerate(self.variables) if v is model.optimizer.iterations), None)

    def starts_blank(self, unbuilt: Any) -> bool:
        """Return whether building the optimizer adds only zeros, and the engine adds no variables.

        `unbuilt` is the optimizer before it is built.
        """
        added = [v for v, kind in zip(self.variables, self.kinds, strict=True) if kind == states.OPTIMIZER]
        added = added[len(unbuilt.variables) :]
        visible = self.kinds[-1] == states.OPTIMIZER
        return visible and not any(runtime.to_numpy(variable).any() for variable in added)

    def state(self, arrays: list[np.ndarray], unchanged: Frozen | None = None) -> State:
        step = 0 if self._step is None else int(arrays[self._step])
        made = State(self.names, arrays, self.kinds, self.weight_order, step)
        if unchanged is not None:
            made.frozen_places = self.frozen
            made.share(unchanged)
        return made


def _compiled(model: Any, params: CompileParams) -> Any:
    try:
        model.compile(**calls.compile_arguments(params, len(model.outputs)))
        model.optimizer.build(model.trainable_variables)
    except CerebroError:
        raise
    except Exception as error:
        raise CerebroError(
            "Keras cannot compile the model", detail=f"Keras says: {calls.one_line(error)}"
        ) from error
    return model


def _fixed_batch(state: State, rows: int | None, batch_size: int) -> tuple[bool | None, bool]:
    """Return whether all batches of the first visit were full, and whether this visit has a fixed batch.

    The first answer is kept in the state for later visits. With a fixed batch, the visit runs code that is
    compiled for the batch size alone. That needs full batches both in this visit and in the first one: once
    Keras' fit has compiled code for any size, it uses this code for all batches. The results of the two kinds
    of code differ only by divisions by the batch size. These are exact for powers of two, which therefore
    never count as fixed.
    """
    if rows is None:
        return state.fixed_batch, False
    divides = rows % batch_size == 0
    from_start = divides if state.fixed_batch is None else state.fixed_batch
    return from_start, from_start and divides and batch_size & (batch_size - 1) != 0


def began_with_full_batches(state: State, rows: int, batch_size: int) -> bool | None:
    """Return whether all batches of a state's first visit were full.

    A new state has no visit yet: return whether all batches of this visit, which has `rows` rows, are full.
    """
    return _fixed_batch(state, rows, batch_size)[0]


def has_fixed_batches(state: State, rows: int, batch_size: int) -> bool:
    """Return whether a visit to this many rows runs code that is compiled for exactly this batch size."""
    return _fixed_batch(state, rows, batch_size)[1]


def _set_weights(state: State, weights: bytes, added: Collection[int]) -> None:
    """Overwrite the weights of a state with `weights`, which are in MADlib's form.

    If `weights` lacks the adapter matrices, whose places are `added`, these keep their values.
    """
    flat = np.frombuffer(weights, "<f4") if len(weights) % 4 == 0 else np.empty(0, "<f4")
    places = state.weight_order
    expected = sum(state.arrays[i].size for i in places)
    if len(flat) != expected:
        places = [place for number, place in enumerate(places) if number not in added]
    if len(flat) != sum(state.arrays[i].size for i in places):
        raise CerebroError(
            f"the weights do not fit the architecture: {expected} values expected, "
            f"{len(weights) / 4:g} received",
            detail=f"{len(weights)} bytes of 4-byte floats were received.",
        )
    start = 0
    for number in places:
        old = state.arrays[number]
        state.arrays[number] = flat[start : start + old.size].reshape(old.shape).astype(old.dtype)
        start += old.size
