"""Checks nets of the most usual layers without an engine.

Each function checks a layer's parameters, and returns the shape that the layer makes of a row and how many
weights it has. A layer that it does not know, or a value of which it is not sure, raises NotHere: then an
engine decides, and raises the right error. tests/unit/test_usual_nets.py compares all of them with Keras.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cerebro_plpy.engine.checks.architecture import canonical
from cerebro_plpy.engine.plain.activations import ACTIVATIONS
from cerebro_plpy.engine.plain.layers import NotHere, Params, Size
from cerebro_plpy.engine.plain.nodes import MALFORMED, Layer, LayerNode, Wiring, wiring

# Initializers whose defaults fit a kernel of any shape, and those without parameters.
_SCALED = ("GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "LecunNormal", "LecunUniform")
_FIXED = ("Ones", "Zeros")
_SPELLED = frozenset(
    "glorot_normal glorot_uniform he_normal he_uniform lecun_normal lecun_uniform ones zeros uniform".split()
)
_ABOUT_LAYERS = {"module", "class_name", "config", "registered_name", "name", "inbound_nodes", "build_config"}
_ABOUT_MODELS = {"class_name", "registered_name", "build_config", "compile_config"}
_MODULES = ("keras", "keras.models", "keras.src.models.functional", "keras.src.models.sequential")
_REGISTERED = (None, "Functional", "Sequential")
_OF_MODELS = {
    "Sequential": {"name", "trainable", "dtype", "layers", "build_input_shape"},
    "Functional": {"name", "trainable", "layers", "input_layers", "output_layers"},
}
_POLICY = {
    "module": "keras",
    "class_name": "DTypePolicy",
    "config": {"name": "float32"},
    "registered_name": None,
}
# The arguments that Keras writes for a layer's call.
_ARGUMENTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "BatchNormalization": [{"mask": None}],
    "Dropout": [{"training": False}],
}
# Parameters that all layers may have, and that are None unless something unusual is meant.
_NONE = ("autocast", "lora_rank", "lora_alpha", "quantization_config")


def is_usual(model_arch: str, weights_bytes: int | None, max_parameters: int) -> bool:
    """Return whether Keras certainly takes a net, of at most `max_parameters` weights, and weights for it.

    `weights_bytes` is how many bytes of weights are given, None without weights.
    """
    try:
        parameters, largest = _measure(canonical(model_arch))
    except MALFORMED:
        return False
    return max(parameters, largest) <= max_parameters and weights_bytes in (None, 4 * parameters)


def _measure(model: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of a net's weights, and the most numbers that one of its layers makes of a row."""
    about, config = {key: value for key, value in model.items() if key != "config"}, model["config"]
    _want(about.pop("module") in _MODULES and about.keys() <= _ABOUT_MODELS)
    _want(config.keys() <= _OF_MODELS[model["class_name"]] and about.get("registered_name") in _REGISTERED)
    _want("name" in config)
    _check_idle(config)
    wired = wiring(model)
    _check_connected(wired)
    made = {name: _row_shape(name, layer) for name, layer in wired.inputs.items()}
    built = config.get("build_input_shape")
    _want(built is None or _is_same(built, [None, *next(iter(made.values()))]))
    if "input_layers" in config:
        _want(_is_same(config["input_layers"], [[name, 0, 0] for name in wired.inputs]))
        _want(_is_same(config["output_layers"], [[name, 0, 0] for name in wired.outputs]))
        _want(all(_is_same(layer["inbound_nodes"], []) for layer in wired.inputs.values()))
    parameters = 0
    for node in wired.nodes:
        given = [made[source] for source in node.sources]
        _check_layer(node.name, node.layer, given)
        _check_call(node)
        params = Params(node.layer["config"])
        made[node.name], weights = _LAYERS[node.layer["class_name"]](params, given)
        params.end()
        parameters += weights
    return parameters, max(math.prod(shape) for shape in made.values())


def _check_connected(wired: Wiring) -> None:
    taken = {source for node in wired.nodes for source in node.sources}
    _want(bool(wired.nodes) and wired.inputs.keys() <= taken)
    _want(len(set(wired.outputs)) == len(wired.outputs) and not wired.inputs.keys() & set(wired.outputs))


def _row_shape(name: str, layer: Layer) -> Size:
    params = Params(layer["config"])
    rows, *shape = params.take("batch_shape")
    params.want(sparse=False, ragged=False, optional=False)
    params.end()
    _want(rows is None and bool(shape) and all(map(_is_size, shape)))
    _check_layer(name, layer, [tuple(shape)])
    return tuple(shape)


def _check_layer(name: str, layer: Layer, given: Sequence[Size]) -> None:
    """Check what stands beside the parameters that a layer has alone."""
    config = layer["config"]
    _want(layer.keys() <= _ABOUT_LAYERS and config["name"] == name)
    _want(layer["module"] == "keras.layers" and layer["registered_name"] is None)
    _check_idle(config)
    built: Any = [[None, *shape] for shape in given]
    found = layer.get("build_config")
    _want(found is None or _is_same(found, {"input_shape": built[0] if len(given) == 1 else built}))


def _check_call(node: LayerNode) -> None:
    """Check how a layer of a graph takes the outputs of others; `wiring` has only read their names."""
    if "inbound_nodes" not in node.layer:
        return
    (call,) = node.layer["inbound_nodes"]
    tensors = call["args"] if node.layer["class_name"] != "Concatenate" else call["args"][0]
    for tensor, source in zip(tensors, node.sources, strict=True):
        rows, *sizes = shape = tensor["config"]["shape"]
        _want((rows is None or _is_size(rows)) and all(size is None or _is_size(size) for size in sizes))
        taken = {"shape": shape, "dtype": "float32", "keras_history": [source, 0, 0]}
        _want(_is_same(tensor, {"class_name": "__keras_tensor__", "config": taken}))
    allowed = [{}, *_ARGUMENTS.get(node.layer["class_name"], ())]
    _want(call.keys() == {"args", "kwargs"} and any(_is_same(call["kwargs"], one) for one in allowed))


def _check_idle(config: Mapping[str, Any]) -> None:
    """Check the parameters that do not change what a layer computes, and that `Params` overlooks."""
    for key, value in config.items():
        if key == "name":
            _want(isinstance(value, str) and bool(value) and "/" not in value)
        elif key == "dtype":
            _want(value in (None, "float32") or _is_same(value, _POLICY))
        elif key == "trainable":
            _want(isinstance(value, bool))
        elif key == "seed":
            _want(value is None or type(value) is int)
        elif key.endswith("_initializer"):
            _check_initializer(value)
        elif key.endswith(("_regularizer", "_constraint")) or key in _NONE:
            _want(value is None)


def _check_initializer(value: Any) -> None:
    if isinstance(value, str):
        return _want(value in _SPELLED)
    name, config = value["class_name"], {**value["config"]}
    _want(value.keys() == {"module", "class_name", "config", "registered_name"})
    _want(value["module"] == "keras.initializers" and value["registered_name"] is None)
    if name not in _FIXED:
        seed = config.pop("seed")
        _want(seed is None or type(seed) is int)
    uniform = name == "RandomUniform" and config == {"minval": -0.05, "maxval": 0.05}
    scaled = name in _SCALED and config in ({}, {"input_axes": None, "output_axes": None})
    return _want(uniform or scaled or (name in _FIXED and not config))


def _dense(params: Params, given: Sequence[Size]) -> tuple[Size, int]:
    (shape,) = given
    units, has_bias = params.take("units"), params.take("use_bias", True)
    _want(_is_size(units) and isinstance(has_bias, bool))
    params.activation()
    return (*shape[:-1], units), units * (shape[-1] + has_bias)


def _dropout(params: Params, given: Sequence[Size]) -> tuple[Size, int]:
    (shape,) = given
    params.want(noise_shape=None)
    _want(0 <= _number(params.take("rate")) < 1)
    return shape, 0


def _activation(params: Params, given: Sequence[Size]) -> tuple[Size, int]:
    (shape,) = given
    _want(params.take("activation") in ACTIVATIONS)
    return shape, 0


def _flatten(params: Params, given: Sequence[Size]) -> tuple[Size, int]:
    (shape,) = given
    _want(params.take("data_format") in (None, "channels_last"))
    return (math.prod(shape),), 0


def _rescaling(params: Params, given: Sequence[Size]) -> tuple[Size, int]:
    (shape,) = given
    _number(params.take("scale"))
    _number(params.take("offset"))
    return shape, 0


def _embedding(params: Params, given: Sequence[Size]) -> tuple[Size, int]:
    (shape,) = given
    params.want(mask_zero=False, input_length=None, weights=None)
    known, width = params.take("input_dim"), params.take("output_dim")
    _want(_is_size(known) and _is_size(width))
    return (*shape, width), known * width


def _batch_normalization(params: Params, given: Sequence[Size]) -> tuple[Size, int]:
    (shape,) = given
    params.want(synchronized=False, renorm=False, renorm_clipping=None, renorm_momentum=0.99)
    _want(params.take("axis", -1) in (-1, len(shape)))
    _want(0 < _number(params.take("momentum", 0.99)) < 1 and 0 < _number(params.take("epsilon", 1e-3)) < 1)
    scale, center = params.take("scale", True), params.take("center", True)
    _want(isinstance(scale, bool) and isinstance(center, bool))
    return shape, shape[-1] * (2 + scale + center)


def _concatenate(params: Params, given: Sequence[Size]) -> tuple[Size, int]:
    first, *others = given
    _want(params.take("axis", -1) in (-1, len(first)))
    _want(bool(others) and all(shape[:-1] == first[:-1] for shape in others))
    return (*first[:-1], sum(shape[-1] for shape in given)), 0


_LAYERS: Mapping[str, Callable[[Params, Sequence[Size]], tuple[Size, int]]] = {
    "Activation": _activation,
    "BatchNormalization": _batch_normalization,
    "Concatenate": _concatenate,
    "Dense": _dense,
    "Dropout": _dropout,
    "Embedding": _embedding,
    "Flatten": _flatten,
    "Rescaling": _rescaling,
}


def _want(sure: bool) -> None:
    if not sure:
        raise NotHere


def _is_same(value: object, other: object) -> bool:
    """Return whether two values are the same as JSON; in Python, 1, 1.0 and true are equal."""
    return json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True)


def _is_size(value: object) -> bool:
    return type(value) is int and value > 0


def _number(value: object) -> float:
    """Return a finite number as it is; raise NotHere for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise NotHere
    return value
