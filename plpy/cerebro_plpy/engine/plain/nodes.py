"""Finds the layers of a net and their sources, in the order in which Keras has the layers' weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cerebro_plpy.engine.plain.layers import NotHere
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.layers import TAKE

Layer = Mapping[str, Any]
# Raised for nets that need an engine. If the JSON has something in a wrong place, the engine raises the right
# error.
MALFORMED = (NotHere, CerebroError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class LayerNode:
    """A layer of a net, and the names of the layers whose outputs it takes."""

    name: str
    layer: Layer
    sources: tuple[str, ...]
    # Further arguments of an operation's call.
    given: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wiring:
    """A net: its inputs by name, its other layers in Keras' order, and the names of its output layers."""

    inputs: Mapping[str, Layer]
    nodes: Sequence[LayerNode]
    outputs: tuple[str, ...]


def wiring(model: Mapping[str, Any]) -> Wiring:
    """Return the wiring of a model from its config; each layer must be used only once."""
    if model["class_name"] == "Sequential":
        return _chain(model["config"]["layers"])
    return _graph(model["config"])


def _chain(layers: Sequence[Layer]) -> Wiring:
    names = [layer["config"]["name"] for layer in layers]
    first, *rest = layers
    if first["class_name"] != "InputLayer" or len(set(names)) < len(names):
        raise NotHere
    nodes = [
        LayerNode(name, layer, (before,)) for before, name, layer in zip(names, names[1:], rest, strict=False)
    ]
    return Wiring({names[0]: first}, nodes, (names[-1],))


def _graph(config: Mapping[str, Any]) -> Wiring:
    layers = {layer["name"]: layer for layer in config["layers"]}
    inputs, outputs = _listed(config["input_layers"]), _listed(config["output_layers"])
    sources = {name: _sources(layer) for name, layer in layers.items()}
    begins = {name for name, layer in layers.items() if layer["class_name"] == "InputLayer"}
    if len(layers) < len(config["layers"]) or begins != set(inputs) or len(begins) < len(inputs):
        raise NotHere
    nodes = [
        LayerNode(name, layers[name], sources[name], _find_arguments(layers[name]))
        for name in _in_keras_order(sources, outputs)
        if name not in begins
    ]
    return Wiring({name: layers[name] for name in inputs}, nodes, outputs)


def _in_keras_order(sources: Mapping[str, Sequence[str]], outputs: Sequence[str]) -> list[str]:
    """Return the names of layers in Keras' order: by descending distance to an output, then as they are met.

    Layers are met on the way back from the outputs, each before its sources.
    """
    met: dict[str, int] = {}
    after_their_sources: list[str] = []

    def visit(name: str) -> None:
        if name not in met:
            met[name] = len(met)
            for source in sources[name]:
                visit(source)
            after_their_sources.append(name)

    for name in outputs:
        visit(name)
    depth = dict.fromkeys(met, 0)
    for name in reversed(after_their_sources):
        for source in sources[name]:
            depth[source] = max(depth[source], depth[name] + 1)
    return sorted(met, key=lambda name: (-depth[name], met[name]))


def _sources(layer: Layer) -> tuple[str, ...]:
    """Return the names of the layers whose outputs a layer's only call takes.

    Keras 2 wrote `[name, node, tensor, arguments]` for each source, Keras 3 writes the call. Raise NotHere if
    other arguments of the call change what the layer does.
    """
    if layer["class_name"] == "InputLayer":
        return ()
    (call,) = layer["inbound_nodes"]
    if isinstance(call, list):
        given = [argument for tensor in call for argument in tensor[3:]]
        tensors = [tensor[:3] for tensor in call]
    else:
        given = list(call.get("kwargs", {}).values())
        taken = call["args"][:1] if layer["class_name"] == TAKE else call["args"]
        tensors = [tensor["config"]["keras_history"] for tensor in _flat(taken)]
    # Arguments that change what the layer does in this call.
    if any(argument not in (None, False, {}) for argument in given):
        raise NotHere
    return tuple(_name(tensor) for tensor in tensors)


def _find_arguments(layer: Layer) -> Mapping[str, Any]:
    if layer["class_name"] != TAKE:
        return {}
    (call,) = layer["inbound_nodes"]
    _, indices = call["args"]
    return {"indices": indices}


def _flat(args: Any) -> list[Any]:
    return [one for arg in args for one in _flat(arg)] if isinstance(args, list) else [args]


def _name(tensor: Sequence[Any]) -> str:
    name, node, place = tensor
    if node or place:
        raise NotHere
    return name


def _listed(tensors: Any) -> tuple[str, ...]:
    """Return the names of the layers that make these tensors; a single tensor has no list around it.

    Raise NotHere for a dictionary of tensors, which has an order of its own.
    """
    if not isinstance(tensors, list):
        raise NotHere
    return tuple(_name(one) for one in ([tensors] if isinstance(tensors[0], str) else tensors))
