"""A net's forward pass by NumPy, for answers without waiting seconds until an engine has started.

It is only for nets whose layers and parameters `layers.py` and `members.py` know, with each layer used once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cerebro_plpy.engine.checks.architecture import DescribedModel, Shape, canonical
from cerebro_plpy.engine.plain import layers, members
from cerebro_plpy.engine.plain.activations import linear
from cerebro_plpy.engine.plain.layers import Array, LayerCall, NotHere, Params, Size
from cerebro_plpy.engine.plain.nodes import MALFORMED, LayerNode, wiring

LAYERS = {**layers.LAYERS, **members.LAYERS}
_MODULES = (None, "keras.layers")
# Layers for which NumPy takes longer than an engine: convolutions, which count by their multiplications, and
# recurrent layers, of which each step counts as so many multiplications.
_CONVOLUTIONS, _RECURRENT = ("Conv1D", "Conv2D"), ("GRU", "LSTM", "SimpleRNN")
_OF_A_STEP = 250_000
_DENSE = LAYERS.keys() - {*_CONVOLUTIONS, *_RECURRENT}
# Up to so much work, calling an engine costs as much as NumPy.
_LIGHT = 100_000


# One layer's computation, and the places of the values that it takes, among the inputs and what earlier steps
# have made.
LayerStep = tuple[LayerCall, tuple[int, ...]]


@dataclass(frozen=True)
class PlainNet:
    """A net that NumPy computes: its description and its forward pass; outputs are float32."""

    described: DescribedModel
    nbytes: int
    # The work for one row in layers for which NumPy takes longer than an engine.
    work: int
    steps: tuple[LayerStep, ...]
    # The places of the outputs' values.
    outputs: tuple[int, ...]

    @property
    def is_light(self) -> bool:
        """Whether NumPy computes a row as fast as an engine that is already running."""
        return self.work <= _LIGHT

    def __call__(self, inputs: list[Array]) -> list[Array]:
        """Return the outputs; raise NotHere for values that only an engine can handle."""
        values = list(inputs)
        with np.errstate(all="ignore"):
            for apply, sources in self.steps:
                if len(sources) == 1:
                    values.append(apply(values[sources[0]]))
                else:
                    values.append(apply(*[values[source] for source in sources]))
        return [np.asarray(values[place], np.float32) for place in self.outputs]


def plain_net(
    model_arch: str, weights: bytes, input_shapes: tuple[Shape, ...] | None = None
) -> PlainNet | None:
    """Return a net that NumPy computes; None if the net needs an engine.

    A malformed net counts as one that needs an engine, which then raises the right error. `input_shapes` are
    shapes of one row, for a net that does not say the shapes of its inputs.
    """
    try:
        return _make(canonical(model_arch, input_shapes), weights)
    except MALFORMED:
        return None


def is_dense(model_arch: str) -> bool:
    """Return whether NumPy knows all layers of a net, and none of them is a convolution or recurrent."""
    try:
        nodes = wiring(canonical(model_arch)).nodes
        return all(_is_at_home(node.layer) and node.layer["class_name"] in _DENSE for node in nodes)
    except MALFORMED:
        return False


def _make(model: Mapping[str, Any], weights: bytes) -> PlainNet:
    wired, reader = wiring(model), _WeightsInOrder(weights)
    shapes = [_input_shape(layer) for layer in wired.inputs.values()]
    values = {
        name: np.zeros((1, *shape), np.float32) for name, shape in zip(wired.inputs, shapes, strict=True)
    }
    places = {name: place for place, name in enumerate(wired.inputs)}
    steps: list[LayerStep] = []
    work = 0
    with np.errstate(all="ignore"):
        for node in wired.nodes:
            given = [values[source] for source in node.sources]
            known = len(reader.shapes)
            apply = _layer(node, given, reader)
            values[node.name] = made = apply(*given)
            if apply is linear:
                places[node.name] = places[node.sources[0]]
            else:
                places[node.name] = len(wired.inputs) + len(steps)
                steps.append((apply, tuple(places[source] for source in node.sources)))
            if node.layer["class_name"] in _CONVOLUTIONS:
                work += math.prod(made.shape[1:-1]) * math.prod(reader.shapes[known])
            elif node.layer["class_name"] in _RECURRENT:
                work += given[0].shape[1] * _OF_A_STEP
    reader.end()
    described = DescribedModel(
        json=json.dumps(model, sort_keys=True, separators=(",", ":")),
        inputs=tuple(shapes),
        outputs=tuple(values[name].shape[1:] for name in wired.outputs),
        input_names=tuple(wired.inputs),
        output_names=wired.outputs,
        parameters=len(weights) // 4,
        flops_per_row=0,
        work={},
        weight_shapes=tuple(reader.shapes),
    )
    return PlainNet(
        described=described,
        nbytes=len(weights),
        work=work,
        steps=tuple(steps),
        outputs=tuple(places[name] for name in wired.outputs),
    )


def _layer(node: LayerNode, given: list[Array], reader: _WeightsInOrder) -> LayerCall:
    layer = node.layer
    name, shape = layer["class_name"], given[0].shape
    if name not in LAYERS or not _is_at_home(layer):
        raise NotHere
    if any(len(one.shape) != len(shape) for one in given):
        raise NotHere
    params = Params({**layer["config"], **node.given})
    made = LAYERS[name](params, shape[1:], reader.take)
    params.end()
    return made


def _is_at_home(layer: Mapping[str, Any]) -> bool:
    """Return whether a layer is the one that `LAYERS` has, and not another layer with its class name."""
    module, written = layer.get("module"), layer.get("registered_name")
    if layer["class_name"] in members.PLACES:
        place, names = members.PLACES[layer["class_name"]]
        return module == place and written in names
    return module in _MODULES and written is None


def _input_shape(layer: Mapping[str, Any]) -> Size:
    params = Params(layer["config"])
    rows, *shape = params.take("batch_shape")
    params.want(sparse=False, ragged=False, optional=False)
    params.end()
    if rows is not None or any(size is None for size in shape):
        raise NotHere
    return tuple(shape)


class _WeightsInOrder:
    """A reader of weights in MADlib's form, which returns them as arrays one after the other."""

    def __init__(self, weights: bytes) -> None:
        self._flat = np.frombuffer(weights, "<f4")
        self._place = 0
        self.shapes: list[Size] = []

    def take(self, *shape: int) -> Array:
        size, begin = math.prod(shape), self._place
        self._place += size
        self.shapes.append(shape)
        return self._flat[begin : self._place].reshape(shape)

    def end(self) -> None:
        if self._place != len(self._flat):
            raise NotHere
