"""Joins nets: several to one that answers with their weighted mean, or trained layers to a new head."""

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
# How the names begin that joining gives to layers.
_ADDED = re.compile(r"(net|input_|share_|temper_)\d")


@dataclass(frozen=True)
class Tempering:
    """The numbers that temper probabilities p: a softmax is taken of `log(p + least) / temperature`."""

    temperature: float
    least: float


def join(
    nets: Sequence[str], weights: Sequence[float], called: str, tempering: Tempering | None = None
) -> str:
    """Return the JSON of a net that answers with the sum of the nets' answers, each times its weight.

    The nets are functional or sequential models as Keras 3 writes them, with one output and equal inputs.
    Layers of the n-th net, counted from 1, get the name `net<n>_<name>`. The joined output has the name of
    the first net's output, or "answer" if that name could clash with a name that joining adds.
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
    """Frozen layers of a trained net, to which a head can be added; `names` does not include the inputs."""

    graph: Graph
    last: LayerOutput
    names: Sequence[str]


# Arguments by which layers draw at random, each with a part of the names of the classes that have it.
_DRAWN = {"rate": "Drop", "stddev": "Noise", "dropout": "", "recurrent_dropout": ""}


def begin_on(model_arch: str, layer: str, rank: int) -> TrainedLayers:
    """Return a trained layer and all layers that lead to it, frozen, so that a head can be added.

    A row of the layer's output has `rank` dimensions. Raise an error if the layer is an input, if some input
    does not lead to it, or if a layer before it is used several times.
    """
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
    """Return a copy of a layer that neither trains nor draws random numbers; nor do the layers inside it."""
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
    """Return a copy of an input layer under its name in the joined net, for example `input_1`."""
    name = f"input_{place}"
    return {**layer, "name": name, "config": {**layer["config"], "name": name}}


def _kind(layer: Mapping[str, Any]) -> tuple[Any, Any]:
    return layer["config"]["batch_shape"], layer["config"].get("dtype") or "float32"


def layer_name(joined: str) -> tuple[int, str] | None:
    """Return (2, "dense") for the layer `net2_dense` of a joined net; None for a layer that joining added."""
    head, _, name = joined.partition("_")
    return (int(head[3:]), name) if head.startswith("net") and head[3:].isdigit() else None


def _functional(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of a model in the form of a functional model, even if the model is a Sequential."""
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
    """Return a model's input or output tensors as a list; a single tensor may have no list around it."""
    if not isinstance(tensors, list):
        raise CerebroError(
            "a net whose inputs or outputs have names of their own cannot be joined",
            hint="Make it with lists of inputs and outputs in place of dictionaries.",
            sqlstate=NOT_SUPPORTED,
        )
    return [tensors] if isinstance(tensors[0], str) else list(tensors)


def _renamed(layer: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a copy of a layer with new names for it and for its sources; `names` maps old names to new."""
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
