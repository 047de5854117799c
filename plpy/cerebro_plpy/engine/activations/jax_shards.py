"""Trains a net in shards on JAX; the device holds the shard that is computed and the next one.

The forward pass keeps the tensors that enter each shard. The backward pass goes from the last shard to the
first: it computes a shard again, and at once makes the optimizer's step for the shard's weights. Variables of
all other shards lie in the memory of the host; where there is a GPU, in pages that it can read by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cerebro_plpy.engine.activations.jax_shard import Shard
from cerebro_plpy.engine.activations.ledger import DeviceLedger
from cerebro_plpy.engine.activations.shards import DeviceRoom, Span, bytes_of, peak_bytes
from cerebro_plpy.engine.backends.interfaces import Feed, KnownArrays, Tick, unwrap_optimizer
from cerebro_plpy.engine.backends.jax_metrics import ArrayLoop, pack_batch, pick_rows, release_values
from cerebro_plpy.engine.backends.jax_stacks import settled
from cerebro_plpy.errors import CONFIG_FAILED, CerebroError

# The kinds of computation of a shard.
_FORWARD, _BACKWARD, _MEASURE = "forward", "backward", "measure"


class ShardedLoop(ArrayLoop):
    """A training loop for a net in shards, whose variables lie on the host until they are needed."""

    def __init__(
        self,
        model: Any,
        variables: list[Any],
        inputs: Sequence[str],
        spans: Sequence[Span],
        room: DeviceRoom,
    ) -> None:
        super().__init__(model, inputs)
        self._variables = variables
        self.shards = [Shard(model, span, inputs) for span in spans]
        self._shared = self.shards[0].shared
        self._last = len(spans) - 1
        self._lowest = next((n for n, shard in enumerate(self.shards) if shard.trainable), self._last)
        for shard in self.shards[self._lowest + 1 :]:
            shard.hands_slopes_on = True
        self.ledger = DeviceLedger()
        self._store = VariableStore(self.ledger)
        self._programs: dict[Any, _ShardProgram] = {}
        self._most = room.bytes
        # The bytes that two shards at a time leave free on the device.
        self._spare = room.bytes - peak_bytes(spans, room)
        self._training = self._cycle(
            [
                *((_FORWARD, number) for number in range(self._last)),
                *((_BACKWARD, number) for number in range(self._last, self._lowest - 1, -1)),
            ]
        )
        release_values(variables)
        self._measuring = self._cycle([(_MEASURE, number) for number in range(self._last + 1)])

    def load(self, arrays: Iterable[np.ndarray], known: KnownArrays) -> None:
        self._store.fill({id(v): array for v, array in zip(self._variables, arrays, strict=True)})
        self._store.bring(self._shared)

    def save(self, known: KnownArrays) -> list[np.ndarray]:
        self._store.keep_only([])
        return [
            known[place] if place in known else self._store.read(variable)
            for place, variable in enumerate(self._variables)
        ]

    def metrics(self) -> list[np.ndarray]:
        # Nets of other configs use the device next, each with a ledger of its own.
        self._store.keep_only([])
        return super().metrics()

    def finish_pass(self) -> None:
        """Replace weights by their moving average if the optimizer keeps one, as at the end of Keras' fit."""
        optimizer = unwrap_optimizer(self._model.optimizer)
        if not optimizer.use_ema:
            return
        self._store.keep_only(self._shared)
        averages = optimizer._model_variables_moving_average
        pairs = zip(self._model.trainable_variables, averages, strict=True)
        self._store.fill({id(variable): self._store.read(average) for variable, average in pairs})

    def train(self, feed: Feed, order: np.ndarray, batch_size: int, fixed: bool, tick: Tick) -> None:
        self._run(self._training, feed, order, batch_size, tick)

    def test(self, feed: Feed, order: np.ndarray, batch_size: int, tick: Tick) -> None:
        self._run(self._measuring, feed, order, batch_size, tick)

    def _run(
        self, steps: Sequence[_ShardStep], feed: Feed, order: np.ndarray, batch_size: int, tick: Tick
    ) -> None:
        self._store.bring(self._shared)
        for first in range(0, len(order), batch_size):
            picked = pick_rows(feed, order[first : first + batch_size])
            batch = _ShardBatch.begin(self._model, picked, self.ledger)
            try:
                for step in steps:
                    self._store.bring(step.wants)
                    self._step(step, batch)
                    self._store.keep_only([*self._shared, *step.keeps])
                    tick()
                if batch.shared is not None:
                    self._store.put(self._shared, batch.shared)
            finally:
                # Also where a visit is broken off: the next visit goes on with the same ledger.
                batch.end()

    def _wanted(self, kind: str, number: int) -> list[Any]:
        shard = self.shards[number]
        return [*shard.trainable, *shard.others, *(shard.slots if kind == _BACKWARD else [])]

    def _cycle(self, steps: Sequence[tuple[str, int]]) -> list[_ShardStep]:
        """Return the shards' computations for a mini-batch, each with the variables to keep on the device.

        `steps` has the kind and the shard of each computation. Variables that are needed soonest are kept, as
        long as the device has room.
        """
        found = []
        for place, (kind, number) in enumerate(steps):
            later = [self._wanted(*step) for step in [*steps[place + 1 :], *steps[: place + 1]]]
            own = self._wanted(kind, number)
            most = _size_of([*own, *later[0]]) + self._spare
            keeps = later[0]
            for wanted in later[1:]:
                if _size_of([*own, *keeps, *wanted]) > most:
                    break
                keeps = [*keeps, *wanted]
            found.append(_ShardStep(kind, number, own, later[0], keeps))
        return found

    def _step(self, step: _ShardStep, batch: _ShardBatch) -> None:
        """Compute a shard for a mini-batch; meanwhile, copy the variables of the next one to the device."""
        kind, number = step.kind, step.number
        shard, store = self.shards[number], self._store
        train, others = store.arrays(shard.trainable), store.arrays(shard.others)
        labels = (batch.labels, self.metrics_arrays)
        if kind == _BACKWARD and number == self._last:
            own = (train, store.arrays(shard.slots))
            steps = (store.arrays(self._shared), self._given)
            given = (own, others, steps, (batch.enters[number], batch.extra), labels)
            made = self._call(step, shard.finish, given)
            stepped, changed, self.metrics_arrays = made
            store.put(shard.changed, changed)
            self._leave(shard, batch, number, stepped)
        elif kind == _BACKWARD:
            own = (train, store.arrays(shard.slots))
            steps = (store.arrays(self._shared), self._given)
            before = [batch.before.get(id(v), array) for v, array in zip(shard.others, others, strict=True)]
            given = (own, before, steps, (batch.enters[number], batch.slopes))
            self._leave(shard, batch, number, self._call(step, shard.backward, given))
        elif number == self._last:
            given = (train, others, (batch.enters[number], batch.extra), labels)
            made = self._call(step, shard.measure, given)
            changed, self.metrics_arrays = made
            store.put(shard.changed, changed)
        else:
            given = (train, others, (batch.enters[number], batch.extra))
            forward = partial(shard.forward, kind == _FORWARD)
            left, extra, changed = self._call(step, forward, given)
            before = zip(map(id, shard.changed), store.arrays(shard.changed), strict=True)
            batch.enter(number + 1, left, extra)
            if kind == _FORWARD:
                batch.remember(dict(before))
            else:
                batch.forget(number)
            store.put(shard.changed, changed)

    def _leave(self, shard: Shard, batch: _ShardBatch, number: int, stepped: Any) -> None:
        slopes, (train, slots, shared) = stepped
        self._store.put(shard.trainable, train)
        self._store.put(shard.slots, slots)
        batch.forget(number)
        batch.leave(slopes, shared)

    def _call(self, step: _ShardStep, function: Callable[..., Any], given: Any) -> Any:
        program = self._program((step.kind, step.number), function, given)
        # Not what the last trace found: in training, a shard changes more than when it is measured.
        self.shards[step.number].changed = program.changed
        self._make_room(step, program.extra)
        made = program.run(*given)
        self._store.bring(step.next)
        self.ledger.run(program.extra)
        return jax.block_until_ready(made)

    def _make_room(self, step: _ShardStep, extra: int) -> None:
        """If a program lacks room on the device, remove variables that neither this step nor the next needs.

        `extra` is the memory that the program takes in addition to its arguments. Raise an error if the
        program still needs more room than the device has.
        """
        needs = self._needs(step, extra)
        if needs > self._most:
            self._store.keep_only([*self._shared, *step.wants, *step.next])
            needs = self._needs(step, extra)
        if needs > self._most:
            raise CerebroError(
                f"its shards need {math.ceil(needs / 2**20)} MB on the device, more than device_memory_mb",
                hint="Give it more, or use a smaller batch_size.",
                sqlstate=CONFIG_FAILED,
            )

    def _needs(self, step: _ShardStep, extra: int) -> int:
        return self.ledger.held + self._store.missing_bytes(step.next) + extra

    def _program(self, key: tuple[str, int], function: Callable[..., Any], given: Any) -> _ShardProgram:
        """Return the compiled program of a function, for arguments with the shapes and types of `given`."""
        leaves = jax.tree_util.tree_leaves(given)
        known = (*key, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves))
        if known not in self._programs:
            donated = 0 if key[0] == _BACKWARD else ()
            made = jax.jit(function, donate_argnums=donated).lower(*given).compile()
            needs: Any = made.memory_analysis()
            extra = needs.temp_size_in_bytes + needs.output_size_in_bytes - needs.alias_size_in_bytes
            self._programs[known] = _ShardProgram(made, extra, self.shards[key[1]].changed)
        return self._programs[known]


@dataclass(frozen=True)
class _ShardProgram:
    """A compiled program of a shard.

    `extra` is the memory that it takes in addition to its arguments, and `changed` the untrained variables
    whose values it changes.
    """

    run: Any
    extra: int
    changed: list[Any]


@dataclass(frozen=True)
class _ShardStep:
    """One computation of a shard for a mini-batch.

    `wants` are the variables that it needs, and `next` the variables that the next computation needs. After
    it, the variables `keeps` stay on the device if they are there.
    """

    kind: str
    number: int
    wants: list[Any]
    next: list[Any]
    keeps: list[Any]


def _size_of(variables: Iterable[Any]) -> int:
    return sum(bytes_of(v) for v in {id(v): v for v in variables}.values())


class VariableStore:
    """The values of variables: all of them on the host, some of them on the device."""

    def __init__(self, ledger: DeviceLedger) -> None:
        self._ledger = ledger
        self._host: dict[int, Any] = {}
        self._placed: dict[int, Any] = {}
        # The ids of variables whose values on the device are newer than on the host.
        self._newer: set[int] = set()
        device = jax.devices()[0]
        self._device = jax.sharding.SingleDeviceSharding(device)
        pinned = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
        self._pinned = None if device.platform == "cpu" else pinned

    def fill(self, values: Mapping[int, np.ndarray]) -> None:
        """Set the values of variables on the host, by the variables' ids, and drop copies on the device."""
        self._forget(set(values) & set(self._placed))
        self._host.update(values)

    def bring(self, variables: Iterable[Any]) -> None:
        """Copy to the device each of the variables that is not there yet."""
        for key in dict.fromkeys(map(id, variables)):
            if key not in self._placed:
                self._placed[key] = self._to_device(self._host[key])
                self._ledger.place([self._placed[key]])
                self._ledger.move(self._placed[key].nbytes)

    def missing_bytes(self, variables: Iterable[Any]) -> int:
        """Return the total bytes of the given variables that are not on the device."""
        return _size_of(v for v in variables if id(v) not in self._placed)

    def keep_only(self, variables: Iterable[Any]) -> None:
        """Remove all but these variables from the device, after copying changed values to the host."""
        leaving = set(self._placed) - set(map(id, variables))
        for key in leaving & self._newer:
            self._host[key] = self._to_host(self._placed[key])
            self._ledger.move(self._placed[key].nbytes)
        self._forget(leaving)

    def _forget(self, keys: Iterable[int]) -> None:
        for key in keys:
            self._ledger.drop([self._placed.pop(key)])
            self._newer.discard(key)

    def arrays(self, variables: Sequence[Any]) -> list[Any]:
        return [self._placed[id(variable)] for variable in variables]

    def put(self, variables: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Replace the values of variables that are on the device."""
        self._placed.update(zip(map(id, variables), arrays, strict=True))
        self._newer.update(map(id, variables))

    def read(self, variable: Any) -> np.ndarray:
        return np.asarray(self._host[id(variable)])

    def _to_device(self, value: Any) -> Any:
        # On a processor, host and device have one memory, and an array that shares it would be written over.
        copied = value if self._pinned is not None else jnp.array(value, copy=True)
        return jax.device_put(copied, self._device)

    def _to_host(self, array: Any) -> Any:
        return np.array(array) if self._pinned is None else jax.device_put(array, self._pinned)


@dataclass
class _ShardBatch:
    """The tensors of one mini-batch that pass between the shards of a net."""

    ledger: DeviceLedger
    labels: tuple[Any, ...]
    # The tensors that enter the shards still to be computed, and the sum of layers' losses so far.
    enters: dict[int, list[Any]]
    extra: Any
    # The values, before the forward pass, of the variables that it changes.
    before: dict[int, Any] = field(default_factory=dict[int, Any])
    slopes: list[Any] = field(default_factory=list[Any])
    # The values, after a step, of the optimizer's variables for all weights.
    shared: Any = None

    def enter(self, number: int, tensors: list[Any], extra: Any) -> None:
        """Keep the tensors that enter shard `number`, and the sum of the losses of the layers before it."""
        self.ledger.place(tensors)
        self.enters[number] = tensors
        self.extra = extra

    def forget(self, number: int) -> None:
        """Drop the tensors that entered shard `number`."""
        self.ledger.drop(self.enters.pop(number))

    def remember(self, before: Mapping[int, Any]) -> None:
        """Keep, for the backward pass, the values of variables `before` the forward pass, by their ids."""
        self.ledger.place(before.values())
        self.before.update(before)

    def leave(self, slopes: list[Any], shared: Any) -> None:
        """Keep the gradients `slopes` for the shard before this one, and the values `shared`.

        `shared` has the values of the optimizer's variables that concern all weights.
        """
        self.ledger.drop(self.slopes)
        self.ledger.place(slopes)
        self.slopes, self.shared = slopes, shared

    def end(self) -> None:
        held = (self.labels, self.enters, self.slopes, self.before)
        self.ledger.drop(jax.tree_util.tree_leaves(held))

    @classmethod
    def begin(cls, model: Any, picked: tuple[list[Any], ...], ledger: DeviceLedger) -> _ShardBatch:
        _, *labels = pack_batch(model, *picked)
        placed = jax.tree_util.tree_map(settled, (picked[0], tuple(labels)))
        ledger.place(jax.tree_util.tree_leaves(placed))
        return cls(ledger, placed[1], {0: placed[0]}, settled(jnp.zeros(())))
