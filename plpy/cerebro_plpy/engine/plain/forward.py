"""A net's forward pass by NumPy, for answers without waiting seconds until an engine has started.

It is only for nets whose layers and parameters `layers.py` and `members.py` know, with each layer used once.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cerebro_plpy.engine.checks.architecture import DescribedModel, Shape, canonical
from cerebro_plpy.engine.plain import layers as plain_layers
from cerebro_plpy.engine.plain import members, stacking
from cerebro_plpy.engine.plain.layers import Array, LayerCall, NotHere, Params, Size
from cerebro_plpy.engine.plain.nodes import MALFORMED, LayerNode, Wiring, wiring

LAYERS = {**plain_layers.LAYERS, **members.LAYERS}
_MODULES = (None, "keras.layers")
# Layers for which NumPy takes longer than an engine: convolutions, which count by their multiplications, and
# recurrent layers, of which each step counts as so many multiplications.
_CONVOLUTIONS, _RECURRENT = ("Conv1D", "Conv2D"), ("GRU", "LSTM", "SimpleRNN")
_OF_A_STEP = 250_000
_DENSE = LAYERS.keys() - {*_CONVOLUTIONS, *_RECURRENT}
# Up to so much work, calling an engine costs as much as NumPy.
_LIGHT = 100_000


# Rows are computed in blocks of so many, whose values stay in the processor's cache.
BLOCK_ROWS = 128


@dataclass(frozen=True)
class PlainNet:
    """A net that NumPy computes: its description and its forward pass; outputs are float32."""

    described: DescribedModel
    nbytes: int
    # The work for one row in layers for which NumPy takes longer than an engine.
    work: int
    # Calls with the places of the values that they take, among the inputs and what earlier steps have made.
    steps: tuple[stacking.LayerStep, ...]
    # The places of the outputs' values, and which of the twins that are stacked there is meant, if any.
    outputs: tuple[tuple[int, int | None], ...]

    @property
    def is_light(self) -> bool:
        """Whether NumPy computes a row as fast as an engine that is already running."""
        return self.work <= _LIGHT

    def __call__(self, inputs: list[Array]) -> list[Array]:
        """Return the outputs; raise NotHere for values that only an engine can handle."""
        with np.errstate(all="ignore"):
            rows = len(inputs[0])
            if rows <= BLOCK_ROWS:
                return self._compute(inputs)
            blocks = [
                self._compute([one[begin : begin + BLOCK_ROWS] for one in inputs])
                for begin in range(0, rows, BLOCK_ROWS)
            ]
        return [np.concatenate(each) for each in zip(*blocks, strict=True)]

    def _compute(self, inputs: list[Array]) -> list[Array]:
        values = list(inputs)
        for apply, sources in self.steps:
            if len(sources) == 1:
                values.append(apply(values[sources[0]]))
            else:
                values.append(apply(*[values[source] for source in sources]))
        found = [values[place] if twin is None else values[place][twin] for place, twin in self.outputs]
        return [np.asarray(one, np.float32) for one in found]


def plain_net(
    model_arch: str, weights: bytes, input_shapes: tuple[Shape, ...] | None = None
) -> PlainNet | None:
    """Return a net that NumPy computes; None if the net needs an engine.

    A malformed net counts as one that needs an engine, which then raises the right error. `input_shapes` are
    shapes of one row, for a net that does not say the shapes of its inputs.
    """
    try:
        shapes = None if input_shapes is None else tuple(map(tuple, input_shapes))
        return _make(_read(model_arch, shapes), weights)
    except MALFORMED:
        return None


@dataclass(frozen=True)
class _ReadNet:
    """An architecture that has been read: its canonical JSON, and its layers in order."""

    json: str
    wired: Wiring


@functools.lru_cache(maxsize=16)
def _read(model_arch: str, input_shapes: tuple[Shape, ...] | None = None) -> _ReadNet:
    """Read an architecture once for many weights, as the nets of groups have them."""
    model = canonical(model_arch, input_shapes)
    return _ReadNet(json.dumps(model, sort_keys=True, separators=(",", ":")), wiring(model))


def count_weights(model_arch: str, most: int) -> int | None:
    """Return how many weights a net has; None if NumPy does not know it, or if something in it is too large.

    A net has at most `most` weights, and a layer makes at most `most` numbers of a row. The layers compute a
    row of zeros, with weights of zero.
    """
    reader = _Zeros(most)
    try:
        wired = _read(model_arch).wired
        if any(node.layer["class_name"] not in _DENSE for node in wired.nodes):
            return None
        values, _ = _make_layers(wired, reader)
    except MALFORMED:
        return None
    return reader.count if max(one.size for one in values.values()) <= most else None


def is_dense(model_arch: str) -> bool:
    """Return whether NumPy knows all layers of a net, and none of them is a convolution or recurrent."""
    try:
        nodes = _read(model_arch).wired.nodes
        return all(_is_at_home(node.layer) and node.layer["class_name"] in _DENSE for node in nodes)
    except MALFORMED:
        return False


def _make(read: _ReadNet, weights: bytes) -> PlainNet:
    wired, reader = read.wired, _WeightsInOrder(weights)
    values, layers = _make_layers(wired, reader)
    reader.end()
    shapes = [values[name].shape[1:] for name in wired.inputs]
    work = sum(_count_work(layer, values[layer.node.name]) for layer in layers)
    described = DescribedModel(
        json=read.json,
        inputs=tuple(shapes),
        outputs=tuple(values[name].shape[1:] for name in wired.outputs),
        input_names=tuple(wired.inputs),
        output_names=wired.outputs,
        parameters=len(weights) // 4,
        flops_per_row=0,
        work={},
        weight_shapes=tuple(one.shape for one in reader.taken),
    )
    stacked = stacking.stack(list(wired.inputs), layers)
    # What is stacked is there twice.
    copies = 2 if any(twin is not None for _, twin in stacked.places.values()) else 1
    return PlainNet(
        described=described,
        nbytes=copies * len(weights),
        work=work,
        steps=tuple(stacked.steps),
        outputs=tuple(stacked.places[name] for name in wired.outputs),
    )


def _make_layers(
    wired: Wiring, reader: _WeightsInOrder | _Zeros
) -> tuple[dict[str, Array], list[stacking.MadeLayer]]:
    """Make each layer; return what each node makes of a row of zeros, and the layers."""
    values = {name: np.zeros((1, *_input_shape(layer)), np.float32) for name, layer in wired.inputs.items()}
    layers: list[stacking.MadeLayer] = []
    with np.errstate(all="ignore"):
        for node in wired.nodes:
            given = [values[source] for source in node.sources]
            known = len(reader.taken)
            apply = _layer(node, given, reader)
            values[node.name] = apply(*given)
            layers.append(stacking.MadeLayer(node, apply, reader.taken[known:], given[0].shape[1:]))
    return values, layers


def _count_work(layer: stacking.MadeLayer, made: Array) -> int:
    """Return the work for one row in a layer for which NumPy takes longer than an engine."""
    name = layer.node.layer["class_name"]
    if name in _CONVOLUTIONS:
        return math.prod(made.shape[1:-1]) * layer.weights[0].size
    return layer.shape[0] * _OF_A_STEP if name in _RECURRENT else 0


def _layer(node: LayerNode, given: list[Array], reader: _WeightsInOrder | _Zeros) -> LayerCall:
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


class _Zeros:
    """Weights of zero in any shape, counted as they are taken; all share one number in memory."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0
        self.taken: list[Array] = []

    def take(self, *shape: int) -> Array:
        self.count += math.prod(shape)
        if self.count > self._most:
            raise NotHere
        self.taken.append(np.broadcast_to(np.float32(0), shape))
        return self.taken[-1]


class _WeightsInOrder:
    """A reader of weights in MADlib's form, which returns them as arrays one after the other."""

    def __init__(self, weights: bytes) -> None:
        self._flat = np.frombuffer(weights, "<f4")
        self._place = 0
        self.taken: list[Array] = []

    def take(self, *shape: int) -> Array:
        size, begin = math.prod(shape), self._place
        self._place += size
        self.taken.append(self._flat[begin : self._place].reshape(shape))
        return self.taken[-1]

    def end(self) -> None:
        if self._place != len(self._flat):
            raise NotHere
