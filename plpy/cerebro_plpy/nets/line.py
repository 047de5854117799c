"""Reads a line of layers, such as `Dense(128, activation='relu'), Dropout(0.2)`, and adds them to a net."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.literal import Call, Value, read_layers, shorten
from cerebro_plpy.madlib.nearest import nearest
from cerebro_plpy.nets.graph import Graph, LayerOutput

# For each layer, the arguments that may be written without a name, in this order. Keras checks all else.
PLACES: Mapping[str, tuple[str, ...]] = {
    "Activation": ("activation",),
    "AveragePooling1D": ("pool_size",),
    "AveragePooling2D": ("pool_size",),
    "Conv1D": ("filters", "kernel_size", "strides"),
    "Conv2D": ("filters", "kernel_size", "strides"),
    "Dense": ("units", "activation"),
    "Dropout": ("rate",),
    "Embedding": ("input_dim", "output_dim"),
    "GRU": ("units",),
    "GaussianNoise": ("stddev",),
    "LSTM": ("units",),
    "MaxPooling1D": ("pool_size",),
    "MaxPooling2D": ("pool_size",),
    "Rescaling": ("scale", "offset"),
    "Reshape": ("target_shape",),
    "SeparableConv2D": ("filters", "kernel_size", "strides"),
    "SpatialDropout1D": ("rate",),
    "SpatialDropout2D": ("rate",),
}
# Keras' layer may lack these arguments, but not the layer's JSON.
_WRITTEN: Mapping[str, Mapping[str, Any]] = {"Rescaling": {"offset": 0.0}}
RECURRENT = ("LSTM", "GRU", "SimpleRNN", "Bidirectional")
# Layers that take one vector for each row: a map of features or a sequence before them is averaged.
OF_VECTORS = ("Activation", "BatchNormalization", "Dense", "Dropout", "LayerNormalization")
# Layers that take a sequence of words, and not the mean of the words.
SEQUENTIAL = (*RECURRENT, "Conv1D", "SeparableConv1D", "MaxPooling1D", "AveragePooling1D")


def layers(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the class name and the config of each layer in a line such as `Dense(64), Dropout(0.2)`."""
    found = []
    for call, given in read_layers(text):
        places = PLACES.get(call.name, ())
        if len(given) > len(places):
            known = f" than {', '.join(places)}" if places else ""
            meant = None if places else nearest(call.name, PLACES)
            raise CerebroError(
                f"{call.name} has more arguments without a name{known}: {shorten(text, 100)}",
                hint=(f'Did you mean "{meant}"? ' if meant else "") + "Write name=value, by Keras' names.",
            )
        config = {name: _json(value, name) for name, value in call.kwargs}
        for name, value in zip(places, given, strict=False):
            if name in config:
                raise CerebroError(f"{call.name} is given {name} twice: {shorten(text, 100)}")
            config[name] = _json(value, name)
        found.append((call.name, {**_WRITTEN.get(call.name, {}), **config}))
    if not found:
        raise CerebroError("the net has no layers", hint="Write Dense(64, activation='relu'), or 'linear'.")
    return found


# The modules in which Keras has the objects that an argument names, by the end of the argument's name.
_MODULES = {
    "regularizer": "keras.regularizers",
    "initializer": "keras.initializers",
    "constraint": "keras.constraints",
    "layer": "keras.layers",
}


def _json(value: Value, argument: str) -> Any:
    """Return the value of a layer's argument as JSON; a call such as `L2(0.01)` becomes a Keras object."""
    if isinstance(value, Call):
        config = {name: _json(own, name) for name, own in value.kwargs}
        module = _MODULES.get(argument.rpartition("_")[2])
        return {"class_name": value.name, "config": config, "module": module, "registered_name": None}
    if isinstance(value, list):
        return [_json(one, argument) for one in value]
    if isinstance(value, dict):
        return {str(key): _json(one, argument) for key, one in value.items()}
    return value


def rank_after(kind: str, config: Mapping[str, Any], rank: int) -> int:
    """Return the number of dimensions of one row of a layer's output.

    `kind` and `config` are the layer's class and parameters. `rank` is the number of dimensions of one row of
    the layer's input.
    """
    if kind == "Flatten" or kind.startswith("Global"):
        return 1
    if kind == "Reshape":
        shape = config.get("target_shape")
        return len(shape) if isinstance(shape, list) else rank
    if kind == "Embedding":
        return rank + 1
    # Bidirectional has return_sequences in the config of the layer that it wraps.
    within = _get_config(config["layer"]) if kind == "Bidirectional" and "layer" in config else config
    if kind in RECURRENT and not within.get("return_sequences"):
        return 1
    return rank


def _get_config(layer: Any) -> Mapping[str, Any]:
    """Return the config of a layer's JSON; an empty one for what is no layer, which Keras refuses."""
    found = layer.get("config") if isinstance(layer, dict) else None
    return found if isinstance(found, dict) else {}


def add(graph: Graph, node: LayerOutput, made: list[tuple[str, dict[str, Any]]]) -> LayerOutput:
    """Add layers behind `node`, one after the other, and return the output of the last one."""
    for kind, config in made:
        node = graph.add(kind, [node], rank_after(kind, config, node.rank), config)
    return node
