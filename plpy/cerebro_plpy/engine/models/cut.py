"""A model cut in two: a trunk whose outputs are kept, and a head that trains on these outputs.

Training the head gives the bits of training the whole model. For this, the trunk computes its outputs in
batches of the training batch size: the last bits of a row's output may depend on the number of rows in the
batch, but not on the other rows. Before the head is used, two mini-batches test whether the bits are the same
on this machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cerebro_plpy import memory
from cerebro_plpy.engine import state as states
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.backends.interfaces import Tick
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import trunk
from cerebro_plpy.engine.models.data import Block, ClassWeights, Dataset, batched, room, whole
from cerebro_plpy.engine.models.model import MOST_COMPILED, CompiledModel, Recomputed
from cerebro_plpy.engine.state import State
from cerebro_plpy.engine.weights import place_weights
from cerebro_plpy.madlib.inputs import inputs_of
from cerebro_plpy.madlib.layers import ends

if TYPE_CHECKING:
    from cerebro_plpy.madlib.params import CompileParams

# How many mini-batches test whether the head gives the bits of the whole model.
TRIED = 2


class _Trunks(dict[tuple[str, tuple[str, ...]], "Trunk"]):
    """Trunks by architecture and the names of their layers, in the order in which they were made."""


class _Cuts(dict[tuple[str, str, Recomputed, tuple[str, ...]], "Cut | None"]):
    """Cuts by architecture, parameters and the names of the trunk's layers, in the order of their making."""


def find_cut(model: CompiledModel, params: CompileParams, names: Sequence[str]) -> Cut | None:
    """Return a model cut behind the layers `names`; this process keeps the cuts that it makes.

    Return None if Keras cannot make the head.
    """
    text = model.architecture_json
    code = params.compile_key(inputs_of(params, runtime.backend(), text))
    key = (text, code, model.again, tuple(names))

    def make() -> Cut | None:
        try:
            return Cut(model, params, names)
        except (TypeError, ValueError, KeyError, AttributeError):
            # Training the head would only have been faster.
            return None

    return memory.kept(memory.get_instance(_Cuts), key, MOST_COMPILED, make)


def trunk_of(architecture_json: str, names: Sequence[str]) -> Trunk:
    """Return the trunk that consists of the layers `names`; this process keeps the trunks that it makes."""
    key = (architecture_json, tuple(names))
    return memory.kept(
        memory.get_instance(_Trunks), key, MOST_COMPILED, partial(Trunk, architecture_json, names)
    )


def forget() -> None:
    memory.get_instance(_Trunks).clear()
    memory.get_instance(_Cuts).clear()


class Pass:
    """A model of layers that do not train, whose outputs are computed once for each row."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.shapes = [tuple(tensor.shape[1:]) for tensor in model.outputs]
        self.variables = [*model.trainable_variables, *model.non_trainable_variables]
        self._forward = runtime.get_keras_backend().make_forward(
            model, [tuple(t.shape[1:]) for t in model.inputs]
        )

    def outputs(
        self, values: Sequence[np.ndarray], batches: Iterable[list[np.ndarray]]
    ) -> Iterator[list[np.ndarray]]:
        """Yield the outputs for the inputs of each batch; `values` are the values of the variables."""
        tensors = [runtime.get_keras_backend().to_tensor(value) for value in values]
        for batch in batches:
            yield [np.asarray(output) for output in self._forward(tensors, batch)]

    def features(
        self, values: Sequence[np.ndarray], blocks: Iterable[Block], rows: int, batch_size: int, tick: Tick
    ) -> list[np.ndarray]:
        """Return the outputs for the `rows` rows of the blocks, each computed in a full batch.

        The last batch is filled up with the first rows.
        """
        found = [room((rows, *shape), np.dtype(np.float32)) for shape in self.shapes]
        done = 0
        for batch in self.outputs(values, _full(blocks, batch_size)):
            for own, outputs in zip(found, batch, strict=True):
                own[done : done + batch_size] = outputs[: rows - done]
            done += batch_size
            tick()
        return found


class Trunk(Pass):
    """The layers `names` of an architecture as a model; its inputs are the outputs of the layers `before`.

    Without `before`, its inputs are those of the architecture.
    """

    def __init__(self, architecture_json: str, names: Sequence[str], before: Sequence[str] = ()) -> None:
        self.architecture_json, self.names = architecture_json, names
        with runtime.generators_kept():
            self._built = architecture.build(architecture_json)
            tensors = trunk.leaving(self._built, names)
            inputs = trunk.leaving(self._built, before) if before else self._built.inputs
            super().__init__(runtime.keras().Model(inputs, tensors))
        places = {id(variable): place for place, variable in enumerate(self._built.variables)}
        self.places = [places[id(variable)] for variable in self.variables]
        weights = {id(weight): place for place, weight in enumerate(self._built.weights)}
        # Outputs do not depend on the seeds of a layer that draws nothing.
        self._weighty = [number for number, v in enumerate(self.variables) if id(v) in weights]
        self._weight_places = {number: weights[id(self.variables[number])] for number in self._weighty}
        self._structure = _structure(architecture_json, names, tensors)
        self._digests: dict[str, str] = {}

    def of_state(self, state: State) -> list[np.ndarray]:
        """Return the values of the trunk's variables from a state of the whole model."""
        return [state.arrays[place] for place in self.places]

    def of_weights(self, weights: bytes) -> list[np.ndarray]:
        """Return the values of the trunk's variables, from weights in MADlib's form."""
        # Adapters train, so no trunk has any.
        arrays = place_weights(self._built, weights)
        found = [runtime.to_numpy(variable) for variable in self.variables]
        for number, place in self._weight_places.items():
            found[number] = arrays[place].astype(found[number].dtype)
        return found

    def digest(self, values: Sequence[np.ndarray]) -> str:
        """Return a digest of all that the trunk's outputs depend on, except the rows.

        Equal trunks of different nets have the same digest.
        """
        found = hashlib.sha256(self._structure)
        for number in self._weighty:
            found.update(np.ascontiguousarray(values[number]).reshape(-1).view(np.uint8).data)
        return found.hexdigest()

    def digest_of(self, state: State) -> str:
        """Return `digest` for the values that the trunk's variables have in a state.

        It is cached by the digest of the state's frozen variables, if all weights of the trunk are among
        them.
        """
        frozen = state.frozen
        if frozen is None or not {self.places[number] for number in self._weighty} <= set(
            state.frozen_places
        ):
            return self.digest(self.of_state(state))
        if frozen.digest not in self._digests:
            self._digests[frozen.digest] = self.digest(self.of_state(state))
        return self._digests[frozen.digest]


def _full(blocks: Iterable[Block], batch_size: int) -> Iterator[list[np.ndarray]]:
    first: list[np.ndarray] = []
    for block in batched(blocks, batch_size):
        for start in range(0, len(block.order), batch_size):
            rows = block.order[start : start + batch_size]
            batch = [array[rows] for array in block.dataset.inputs]
            first = first or batch
            missing = batch_size - len(rows)
            yield (
                [np.concatenate([a, b[:missing]]) for a, b in zip(batch, first, strict=True)]
                if missing
                else batch
            )


def _structure(architecture_json: str, names: Sequence[str], tensors: Sequence[Any]) -> bytes:
    """Return a description of the layers `names`, their inputs in order, and the tensors that leave them.

    Numbers replace the names of the layers, by which equal layers of different nets differ.
    """
    config = json.loads(architecture_json)
    layers = [layer for layer in config["config"]["layers"] if layer["config"].get("name") in names]
    numbers = {layer["config"]["name"]: f"#{number}" for number, layer in enumerate(layers)}
    leaving = [
        [numbers.get(t._keras_history.operation.name), list(map(str, t.shape)), str(t.dtype)] for t in tensors
    ]
    inputs = [numbers.get(name) for name in ends(config["config"].get("input_layers"))]
    told = [config["class_name"], _numbered(layers, numbers), inputs, leaving]
    return json.dumps(told, sort_keys=True).encode()


def _numbered(value: Any, numbers: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_numbered(one, numbers) for one in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, one in value.items():
        if key == "name" and isinstance(one, str):
            found[key] = numbers.get(one, one)
        elif key == "keras_history":
            found[key] = [numbers.get(one[0], one[0]), *one[1:]]
        else:
            found[key] = one if key == "dtype" else _numbered(one, numbers)
    return found


class Cut:
    """A model cut into trunk and head, which trains states of the whole model by training the head."""

    def __init__(self, model: CompiledModel, params: CompileParams, names: Sequence[str]) -> None:
        self._whole = model
        self.trunk = trunk_of(model.architecture_json, names)
        with runtime.generators_kept():
            built = architecture.build(model.architecture_json)
            head = runtime.keras().Model(trunk.leaving(built, names), built.outputs)
        self._head = CompiledModel(model.architecture_json, params, (head, built), model.again)
        own = {id(variable): place for place, variable in enumerate(built.variables)}
        kept = self._head.layout.variables[len(head.variables) :]
        behind = len(model.layout.variables) - len(kept)
        # The places of the head's variables in a state of the whole model; moments and the like are last.
        self._places = [own[id(v)] for v in head.variables] + list(range(behind, behind + len(kept)))
        in_order = [id(v) for v in head.trainable_variables] == [id(v) for v in built.trainable_variables]
        self.fits = in_order and behind == len(built.variables)
        # Whether the head gave the bits of the whole model, by batch size.
        self._tried: dict[int, bool] = {}
        self._frozen: dict[str, states.Frozen | None] = {}

    def gives_the_same(
        self, state: State, params: CompileParams, batch_size: int, few: Callable[[int], Dataset], tick: Tick
    ) -> bool:
        """Return whether training the head on a few rows gives the bits of training the whole model.

        In the whole model, an engine may fuse arithmetic across the cut, which may change the last bits. On
        some processors, the last bits of a row depend on its place in the mini-batch, which shuffling
        changes. `few` returns a dataset with the given number of rows.
        """
        if batch_size not in self._tried:
            rows = few(TRIED * batch_size)
            self._tried[batch_size] = self.fits and self._try(state, params, batch_size, rows, tick)
        return self._tried[batch_size]

    def _try(self, state: State, params: CompileParams, batch_size: int, few: Dataset, tick: Tick) -> bool:
        outputs = self.trunk.features(self.trunk.of_state(state), [whole(few)], few.rows, batch_size, tick)
        order = np.random.default_rng(0).permutation(few.rows)
        raw, features = Block(few, order), Block(Dataset(outputs, few.targets), order)
        alone, _ = self._whole.train(state, [[raw]], batch_size, None, tick, params=params)
        cut, _ = self.train(state, [[features]], batch_size, None, tick, params=params)
        return all(a.tobytes() == b.tobytes() for a, b in zip(alone.arrays, cut.arrays, strict=True))

    def train(
        self,
        state: State,
        passes: Iterable[Iterable[Block]],
        batch_size: int,
        class_weight: ClassWeights,
        tick: Tick,
        rows: int | None = None,
        params: CompileParams | None = None,
    ) -> tuple[State, dict[str, float]]:
        """Train a state of the whole model by training the head, with the trunk's outputs as inputs.

        Arguments and results are as in `CompiledModel.train`; the rows in `passes` hold the trunk's outputs.
        """
        trained, logs = self._head.train(
            self._of_head(state), passes, batch_size, class_weight, tick=tick, rows=rows, params=params
        )
        arrays = list(state.arrays)
        for place, array in zip(self._places, trained.arrays, strict=True):
            arrays[place] = array
        made = replace(state, arrays=arrays, step=trained.step, fixed_batch=trained.fixed_batch)
        return made, logs

    def evaluate(
        self, state: State, blocks: Iterable[Block], batch_size: int, tick: Tick
    ) -> list[np.ndarray]:
        return self._head.evaluate(self._of_head(state), blocks, batch_size, tick)

    def _of_head(self, state: State) -> State:
        made = self._head.layout.state([state.arrays[place] for place in self._places])
        made.fixed_batch = state.fixed_batch
        if state.frozen is not None and self._head.layout.frozen:
            if state.frozen.digest not in self._frozen:
                self._frozen.clear()
                made.freeze(self._head.layout.frozen)
                self._frozen[state.frozen.digest] = made.frozen
            made.frozen_places, made.frozen = (
                tuple(self._head.layout.frozen),
                self._frozen[state.frozen.digest],
            )
        return made
