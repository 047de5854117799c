"""Joins nets: several to one whose output is the mean of theirs, or the first layers of one to a new head."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.madlib.layers import LOG, sources
from cerebro_plpy.madlib.layers import layers as layers_in
from cerebro_plpy.madlib.nearest import unknown
from cerebro_plpy.nets.graph import Graph, LayerOutput

INPUT = "InputLayer"
# Names of the joined net's own layers, and of those that it takes over.
_ADDED = re.compile(r"(net|input_|share_|temper_)\d")


@dataclass(frozen=True)
class Tempering:
    """By what the logarithms of probabilities are divided, and what is added to these, so that none is 0."""

    temperature: float
    least: float


def join(
    nets: Sequence[str], weights: Sequence[float], called: str, tempering: Tempering | None = None
) -> str:
    """Return the joined net as JSON; layers of the net with number n are named `net<n>_<name>`.

    The nets are functional or sequential models as Keras 3 writes them, with one output and the same inputs.
    The joined output has the name of the first one's, where that is free.
    """
    graph, shared, ends, label = Graph(), list[dict[str, Any]](), list[LayerOutput](), ""
    for number, (text, weight) in enumerate(zip(nets, weights, strict=True), 1):
        config = _functional(json.loads(text))
        layers = {layer["name"]: layer for layer in config["layers"]}
        inputs = [name for name, _, _ in _listed(config["input_layers"])]
        if not shared:
            shared = [_input(layers[name], place) for place, name in enumerate(inputs, 1)]
            graph.adopt(shared, as_inputs=True)
        own = [_input(layers[name], place) for place, name in enumerate(inputs, 1)]
        if [_kind(layer) for layer in own] != [_kind(layer) for layer in shared]:
            raise CerebroError("the nets have different inputs", sqlstate=NOT_SUPPORTED)
        names = {name: f"net{number}_{name}" for name in layers}
        names |= {name: layer["name"] for name, layer in zip(inputs, shared, strict=True)}
        graph.adopt([_renamed(layer, names) for name, layer in layers.items() if name not in inputs])
        end, node, tensor = _only(_listed(config["output_layers"]))
        label = label or end
        last = LayerOutput(names[end], 1, node, tensor)
        ends.append(graph.layer("Rescaling", last, scale=weight, offset=0.0, name=f"share_{number}"))
    name = label if _ADDED.match(label) is None else "answer"
    if tempering is None:
        return graph.as_json([graph.layer("Add", *ends, name=name)], called)
    mean = graph.layer("Add", *ends, name="temper_1")
    return graph.as_json([_tempered(graph, mean, tempering, name)], called)


def _tempered(graph: Graph, mean: LayerOutput, tempering: Tempering, name: str) -> LayerOutput:
    node = graph.layer("Rescaling", mean, scale=1.0, offset=tempering.least, name="temper_2")
    node = graph.layer(LOG, node, name="temper_3")
    node = graph.layer("Rescaling", node, scale=1 / tempering.temperature, offset=0.0, name="temper_4")
    return graph.layer("Softmax", node, name=name)


@dataclass(frozen=True)
class TrainedLayers:
    """A net in the making that ends with a layer of a trained net: that layer, and the names of all."""

    graph: Graph
    last: LayerOutput
    names: Sequence[str]


# The arguments by which layers draw at random, with a part of the class's name.
_DRAWN = {"rate": "Drop", "stddev": "Noise", "dropout": "", "recurrent_dropout": ""}


def begin_on(model_arch: str, layer: str, rank: int) -> TrainedLayers:
    """Begin a net with a layer of a trained one and all that lead to it, frozen; `rank` is its dimensions."""
    config = _functional(json.loads(model_arch))
    layers = {one["name"]: one for one in config["layers"]}
    if layer not in layers:
        raise unknown(f'the net has no layer "{layer}"', layer, layers)
    names, waiting = set[str](), [layer]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += sources(layers[name]["inbound_nodes"])
    inputs = [name for name, _, _ in _listed(config["input_layers"])]
    unseen = [name for name in inputs if name not in names]
    if unseen or layer in inputs or any(len(layers[name]["inbound_nodes"]) > 1 for name in names):
        why = (
            f'the input "{unseen[0]}" does not lead to it' if unseen else
            "it is an input" if layer in inputs else "a layer before it is used several times"
        )  # fmt: skip
        raise CerebroError(f'no head can sit on layer "{layer}": {why}', sqlstate=NOT_SUPPORTED)
    graph = Graph()
    graph.adopt([layers[name] for name in inputs], as_inputs=True)
    kept = [name for name in layers if name in names and name not in inputs]
    graph.adopt([_frozen(layers[name]) for name in kept])
    return TrainedLayers(graph, LayerOutput(layer, rank), kept)


def _frozen(layer: dict[str, Any]) -> dict[str, Any]:
    """Return a layer that does not train and draws nothing, all layers inside it too."""
    made = copy.deepcopy(layer)
    for own in layers_in({key: value for key, value in made.items() if key != "inbound_nodes"}):
        config = own["config"]
        if own["class_name"] != INPUT:
            config["trainable"] = False
        config |= {key: 0.0 for key, part in _DRAWN.items() if config.get(key) and part in own["class_name"]}
    return made


def _only(ends: Sequence[Any]) -> Any:
    if len(ends) != 1:
        raise CerebroError("a net of several outputs cannot be joined", sqlstate=NOT_SUPPORTED)
    return ends[0]


def _input(layer: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return an input layer under the name that it has in the joined net."""
    name = f"input_{place}"
    return {**layer, "name": name, "config": {**layer["config"], "name": name}}


def _kind(layer: Mapping[str, Any]) -> tuple[Any, Any]:
    return layer["config"]["batch_shape"], layer["config"].get("dtype") or "float32"


def layer_name(joined: str) -> tuple[int, str] | None:
    """Return the number of the net that a layer came from, and its name there; None for added layers."""
    head, _, name = joined.partition("_")
    return (int(head[3:]), name) if head.startswith("net") and head[3:].isdigit() else None


def _functional(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of a functional model, also of a chain of layers."""
    config = model["config"]
    if model["class_name"] != "Sequential":
        return config
    layers = config["layers"]
    if layers[0]["class_name"] != INPUT:
        raise CerebroError("a net without an input layer cannot be joined", sqlstate=NOT_SUPPORTED)
    chained = [{**layers[0], "name": layers[0]["config"]["name"], "inbound_nodes": []}]
    for before, layer in zip(chained, layers[1:], strict=False):
        history = {"keras_history": [before["name"], 0, 0], "shape": [None], "dtype": "float32"}
        call = {"args": [{"class_name": "__keras_tensor__", "config": history}], "kwargs": {}}
        chained.append({**layer, "name": layer["config"]["name"], "inbound_nodes": [call]})
    first, last = chained[0]["name"], chained[-1]["name"]
    return {"layers": chained, "input_layers": [[first, 0, 0]], "output_layers": [[last, 0, 0]]}


def _listed(tensors: Any) -> list[Any]:
    """Return tensors as a list, also a single one that has no list around it."""
    if not isinstance(tensors, list):
        raise CerebroError(
            "a net whose inputs or outputs have names of their own cannot be joined",
            hint="Make it with lists of inputs and outputs in place of dictionaries.",
            sqlstate=NOT_SUPPORTED,
        )
    return [tensors] if isinstance(tensors[0], str) else list(tensors)


def _renamed(layer: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a layer under its new name, and the layers whose outputs it takes under theirs."""
    own = names[layer["name"]]
    calls = [_with_names(call, names) for call in layer["inbound_nodes"]]
    return {**layer, "name": own, "config": {**layer["config"], "name": own}, "inbound_nodes": calls}


def _with_names(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_with_names(one, names) for one in value]
    if not isinstance(value, Mapping):
        return value
    if "keras_history" in value:
        name, *place = value["keras_history"]
        return {**value, "keras_history": [names[name], *place]}
    return {key: _with_names(one, names) for key, one in value.items()}
