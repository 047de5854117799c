"""A net's forward pass without an engine: an engine takes seconds to come up, and somebody waits.

Only for nets that are a chain of layers which `plain_layers` knows, with parameters that it knows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cerebro_plpy.errors import CerebroError

from .architecture import DescribedModel
from .plain_layers import LAYERS, Apply, Array, NotHere, Params, Size

_PLACES = (None, "keras.layers")


@dataclass(frozen=True)
class PlainNet:
    """What is known of a net, and its forward pass; outputs are float32."""

    described: DescribedModel
    nbytes: int
    layers: tuple[Apply, ...]

    def __call__(self, inputs: list[Array]) -> list[Array]:
        values = inputs[0]
        with np.errstate(all="ignore"):
            for apply in self.layers:
                values = apply(values)
        return [np.asarray(values, np.float32)]


def plain_net(model_arch: str, weights: bytes) -> PlainNet | None:
    """Make it; None where an engine is needed, which then also says what may be wrong."""
    try:
        return _make(json.loads(model_arch), model_arch, weights)
    # Whatever stands in such a place where something else should: the engine knows what to say of it.
    except (NotHere, CerebroError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _make(model: Mapping[str, Any], model_arch: str, weights: bytes) -> PlainNet:
    first, *rest = model["config"]["layers"]
    if model.get("class_name") != "Sequential" or first["class_name"] != "InputLayer":
        raise NotHere
    shape = _input_shape(first["config"])
    reader = _WeightsInOrder(weights)
    layers: list[Apply] = []
    values = np.zeros((1, *shape), np.float32)
    with np.errstate(all="ignore"):
        for layer in rest:
            layers.append(_layer(layer, values.shape[1:], reader))
            values = layers[-1](values)
    reader.end()
    described = DescribedModel(
        json=model_arch,
        inputs=(shape,),
        outputs=(values.shape[1:],),
        input_names=(first["config"].get("name", "input"),),
        output_names=((rest or [first])[-1]["config"].get("name", "output"),),
        parameters=len(weights) // 4,
        flops_per_row=0,
        work={},
        weight_shapes=tuple(reader.shapes),
    )
    return PlainNet(described, len(weights), tuple(layers))


def _layer(layer: Mapping[str, Any], shape: Size, reader: _WeightsInOrder) -> Apply:
    name = layer["class_name"]
    if name not in LAYERS or layer.get("module") not in _PLACES or layer.get("registered_name") is not None:
        raise NotHere
    params = Params(layer["config"])
    made = LAYERS[name](params, shape, reader.take)
    params.end()
    return made


def _input_shape(given: Mapping[str, Any]) -> Size:
    params = Params(given)
    shape = params.take("batch_shape") or params.take("batch_input_shape")
    params.want(sparse=False, ragged=False, optional=False)
    params.end()
    if any(size is None for size in shape[1:]):
        raise NotHere
    return tuple(shape[1:])


class _WeightsInOrder:
    """Cuts MADlib's concatenation of float32 in arrays, one after the other."""

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
