"""Joins trunks of several nets to one model, in which layers that they have in common are computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import trunk as trunks
from cerebro_plpy.engine.models.cut import Pass, Trunk


@dataclass(frozen=True)
class TrunkWithValues:
    """A trunk, and the values of its variables."""

    trunk: Trunk
    values: Sequence[np.ndarray]


@dataclass(frozen=True)
class _JoinedLayer:
    """A layer in the joined model, its output tensor, and the tensors that it takes."""

    operation: Any
    tensor: Any
    taken: Sequence[Any]


@dataclass
class _Joined:
    """The layers that are in the joined model so far, by name, and the values of their variables."""

    inputs: Sequence[Any]
    layers: dict[str, _JoinedLayer] = field(default_factory=dict)
    values: dict[int, np.ndarray] = field(default_factory=dict)
    # How many layers several trunks have in common.
    shared: int = 0
    names: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = {tensor._keras_history.operation.name for tensor in self.inputs}


class TogetherPass(Pass):
    """A model that computes the outputs of several trunks."""

    def __init__(self, parts: Sequence[TrunkWithValues]) -> None:
        with runtime.generators_kept():
            models = [architecture.build(part.trunk.architecture_json) for part in parts]
            if len({_form_of_inputs(model) for model in models}) > 1:
                raise ValueError("the nets take other rows")
            joined = _Joined(models[0].inputs)
            leaving = [
                _join(joined, number, model, part)
                for number, (model, part) in enumerate(zip(models, parts, strict=True))
            ]
            tensors = {id(tensor): tensor for own in leaving for tensor in own}
            super().__init__(runtime.keras().Model(list(joined.inputs), list(tensors.values())))
        self.shared = joined.shared
        self.values = [joined.values[id(variable)] for variable in self.variables]
        places = {number: place for place, number in enumerate(tensors)}
        # The places of each trunk's outputs among those of the model.
        self.places = [[places[id(tensor)] for tensor in own] for own in leaving]


def _form_of_inputs(model: Any) -> tuple[tuple[str, tuple[int | None, ...]], ...]:
    return tuple((str(tensor.dtype), tuple(tensor.shape)) for tensor in model.inputs)


def _join(joined: _Joined, number: int, model: Any, part: TrunkWithValues) -> list[Any]:
    """Add the layers of a trunk that the joined model does not have; return the tensors that leave the trunk.

    `number` counts the trunks from 0. It is appended to a layer's name if a layer of another trunk has that
    name.
    """
    values = zip(part.trunk.places, part.values, strict=True)
    joined.values |= {id(model.variables[place]): value for place, value in values}
    tensors = {id(own): tensor for own, tensor in zip(model.inputs, joined.inputs, strict=True)}
    ends = trunks.leaving(model, part.trunk.names)
    for operation in trunks.operations(model):
        sources = trunks.sources(model, operation)
        if operation.name not in part.trunk.names or not sources:
            continue
        output = trunks.output(model, operation)
        taken = [tensors[id(trunks.output(model, source))] for source in sources]
        known = joined.layers.get(operation.name)
        if known is not None and _is_same(joined, known, operation, taken):
            tensors[id(output)] = known.tensor
            joined.shared += 1
            continue
        if number:
            while operation.name in joined.names:
                # A layer of another net has the name.
                operation.name = f"{operation.name}_{number}"
            tensors[id(output)] = trunks.call_again(model, operation, tensors)
        else:
            tensors[id(output)] = output
        joined.names.add(operation.name)
        joined.layers[operation.name] = _JoinedLayer(operation, tensors[id(output)], taken)
    return [tensors[id(tensor)] for tensor in ends]


def _is_same(joined: _Joined, known: _JoinedLayer, operation: Any, taken: Sequence[Any]) -> bool:
    """Return whether the layer `operation` of another trunk computes the same as the layer `known`.

    `taken` are the tensors that `operation` takes in the joined model.
    """
    other = known.operation
    if type(other) is not type(operation) or other.get_config() != operation.get_config():
        return False
    if [id(tensor) for tensor in known.taken] != [id(tensor) for tensor in taken]:
        return False
    pairs = zip(getattr(other, "weights", []), getattr(operation, "weights", []), strict=True)
    return all(np.array_equal(joined.values[id(a)], joined.values[id(b)]) for a, b in pairs)
