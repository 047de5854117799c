"""The forward pass of graphs of layers in NumPy: for one row a call into an engine costs more than the net.

Layers and arguments that are not known here leave the net to the engine; and whoever uses this compares it
with the engine first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .plain_activations import ACTIVATIONS, Apply, Array, linear

# From the layer's inputs to its output.
LayerCall = Callable[[list[Array]], Array]
LayerConfig = Mapping[str, Any]


class UnknownLayerError(Exception):
    """A layer, or an argument of one, that this does not know."""


def _gelu(x: Array) -> Array:
    return x * 0.5 * (1 + np.vectorize(math.erf, otypes=[np.float32])(x / np.float32(math.sqrt(2))))


_ACTIVATIONS: Mapping[str, Apply] = {**ACTIVATIONS, "gelu": _gelu}
# Layers that only training knows.
IDLE = ("Dropout", "SpatialDropout1D", "SpatialDropout2D", "GaussianNoise", "GaussianDropout", "Identity")


def _activation(config: LayerConfig, key: str = "activation") -> Callable[[Array], Array]:
    name = config.get(key) or "linear"
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise UnknownLayerError(name)
    return _ACTIVATIONS[name]


class _Weights:
    """The arrays of a model, handed out in its order."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self._rest = list(arrays)

    def take(self, dimensions: int) -> Array:
        if not self._rest or self._rest[0].ndim != dimensions:
            raise UnknownLayerError("weights in another order")
        return np.ascontiguousarray(self._rest.pop(0))

    def check(self) -> None:
        if self._rest:
            raise UnknownLayerError("weights that no layer took")


def _dense(config: LayerConfig, weights: _Weights) -> LayerCall:
    kernel, activation = weights.take(2), _activation(config)
    bias = weights.take(1) if config.get("use_bias", True) else np.float32(0)

    def run(inputs: list[Array]) -> Array:
        # Of one row, dot() is faster than @.
        found = np.dot(inputs[0], kernel)
        found += bias
        return activation(found)

    return run


def _embedding(config: LayerConfig, weights: _Weights) -> LayerCall:
    if config.get("mask_zero"):
        raise UnknownLayerError("mask_zero")
    table = weights.take(2)

    def run(inputs: list[Array]) -> Array:
        return table[inputs[0].astype(np.int32)]

    return run


def _batch_normalization(config: LayerConfig, weights: _Weights) -> LayerCall:
    if config.get("axis", -1) not in (-1, 1, [-1], [1]):
        raise UnknownLayerError("axis")
    gamma = weights.take(1) if config.get("scale", True) else np.float32(1)
    beta = weights.take(1) if config.get("center", True) else np.float32(0)
    mean, variance = weights.take(1), weights.take(1)
    factor = gamma / np.sqrt(variance + np.float32(config.get("epsilon", 1e-3)))
    offset = beta - mean * factor

    def run(inputs: list[Array]) -> Array:
        return inputs[0] * factor + offset

    return run


def _layer_normalization(config: LayerConfig, weights: _Weights) -> LayerCall:
    if config.get("axis", -1) not in (-1, [-1]) or config.get("rms_scaling"):
        raise UnknownLayerError("axis")
    gamma = weights.take(1) if config.get("scale", True) else np.float32(1)
    beta = weights.take(1) if config.get("center", True) else np.float32(0)
    epsilon = np.float32(config.get("epsilon", 1e-3))

    def normalize(inputs: list[Array]) -> Array:
        (x,) = inputs
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + epsilon) * gamma + beta

    return normalize


def _reshape(config: LayerConfig, weights: _Weights) -> LayerCall:
    shape = tuple(config["target_shape"])

    def run(inputs: list[Array]) -> Array:
        return inputs[0].reshape(len(inputs[0]), *shape)

    return run


def _concatenate(config: LayerConfig, weights: _Weights) -> LayerCall:
    axis = config.get("axis", -1)

    def run(inputs: list[Array]) -> Array:
        return np.concatenate(inputs, axis=axis)

    return run


def _folding(fold: Callable[[Array, Array], Array]) -> Callable[[LayerConfig, _Weights], LayerCall]:
    def make(config: LayerConfig, weights: _Weights) -> LayerCall:
        def run(inputs: list[Array]) -> Array:
            found = inputs[0]
            for other in inputs[1:]:
                found = fold(found, other)
            return found

        return run

    return make


def _rescaling(config: LayerConfig, weights: _Weights) -> LayerCall:
    scale, offset = np.float32(config["scale"]), np.float32(config.get("offset", 0))

    def run(inputs: list[Array]) -> Array:
        return inputs[0] * scale + offset

    return run


def _mean_of_steps(config: LayerConfig, weights: _Weights) -> LayerCall:
    if config.get("keepdims"):
        raise UnknownLayerError("keepdims")

    def run(inputs: list[Array]) -> Array:
        return inputs[0].mean(axis=1)

    return run


def _activated(config: LayerConfig, weights: _Weights) -> LayerCall:
    return _alone(_activation(config))


def _relu(config: LayerConfig, weights: _Weights) -> LayerCall:
    if config.get("max_value") is not None or config.get("negative_slope") or config.get("threshold"):
        raise UnknownLayerError("ReLU")
    return _alone(_ACTIVATIONS["relu"])


def _flatten(config: LayerConfig, weights: _Weights) -> LayerCall:
    return _alone(_flat_rows)


def _flat_rows(x: Array) -> Array:
    return x.reshape(len(x), -1)


def _idle(config: LayerConfig, weights: _Weights) -> LayerCall:
    return _alone(linear)


def _alone(function: Callable[[Array], Array]) -> LayerCall:
    def run(inputs: list[Array]) -> Array:
        return function(inputs[0])

    return run


LAYERS: Mapping[str, Callable[[LayerConfig, _Weights], LayerCall]] = {
    "Dense": _dense,
    "Embedding": _embedding,
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _layer_normalization,
    "Activation": _activated,
    "ReLU": _relu,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Concatenate": _concatenate,
    "Add": _folding(np.add),
    "Multiply": _folding(np.multiply),
    "Rescaling": _rescaling,
    "GlobalAveragePooling1D": _mean_of_steps,
    **dict.fromkeys(IDLE, _idle),
}


def forward(model_arch: str, arrays: Sequence[Array]) -> Callable[[list[Array]], list[Array]] | None:
    """A function from inputs to outputs, or nothing where the engine is needed."""
    try:
        described = json.loads(model_arch)
        weights = _Weights(arrays)
        found = _sequential if described["class_name"] == "Sequential" else _functional
        made = found(described["config"], weights)
        weights.check()
    except (UnknownLayerError, KeyError, TypeError, ValueError):
        return None
    return made


def _step(layer: LayerConfig, weights: _Weights) -> LayerCall:
    config = layer["config"]
    policy = config.get("dtype", "float32")
    name = policy.get("config", {}).get("name") if isinstance(policy, Mapping) else policy
    if layer["class_name"] not in LAYERS or name not in (None, "float32"):
        raise UnknownLayerError(layer["class_name"])
    return LAYERS[layer["class_name"]](config, weights)


def _sequential(config: LayerConfig, weights: _Weights) -> Callable[[list[Array]], list[Array]]:
    steps = [_step(layer, weights) for layer in config["layers"] if layer["class_name"] != "InputLayer"]

    def run(inputs: list[Array]) -> list[Array]:
        for step in steps:
            inputs = [step(inputs)]
        return inputs

    return run


def _functional(config: LayerConfig, weights: _Weights) -> Callable[[list[Array]], list[Array]]:
    steps: list[tuple[str, list[str], LayerCall]] = []
    for layer in config["layers"]:
        if layer["class_name"] == "InputLayer":
            continue
        (node,) = layer["inbound_nodes"]
        if node.get("kwargs") and any(
            value is not None for value in node["kwargs"].values() if value is not False
        ):
            raise UnknownLayerError("arguments of a call")
        steps.append((layer["name"], [_source(one) for one in _flat(node["args"])], _step(layer, weights)))
    given, wanted = _named(config["input_layers"]), _named(config["output_layers"])

    def run(inputs: list[Array]) -> list[Array]:
        values = dict(zip(given, inputs, strict=True))
        for name, sources, step in steps:
            values[name] = step([values[source] for source in sources])
        return [values[name] for name in wanted]

    return run


def _flat(args: Any) -> list[Any]:
    return [one for arg in args for one in _flat(arg)] if isinstance(args, list) else [args]


def _source(tensor: Any) -> str:
    name, node, place = tensor["config"]["keras_history"]
    if node or place:
        raise UnknownLayerError("a layer that is used twice")
    return name


def _named(layers: Any) -> list[str]:
    """One layer is written flat, several as a list or by their names."""
    if isinstance(layers, Mapping):
        layers = list(layers.values())
    if layers and isinstance(layers[0], str):
        layers = [layers]
    return [layer[0] for layer in layers]
