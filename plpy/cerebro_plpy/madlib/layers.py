"""Finds the layers in an architecture's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

# Operations of Keras: one takes some of a row's numbers, and is given more than the outputs of layers.
TAKE = "Take"
LOG, COS, SIN, ARCTAN = "Log", "Cos", "Sin", "Arctan"
# Those that compute a number from each number; NumPy has them in lower case.
FUNCTIONS = (LOG, COS, SIN, ARCTAN)
OPERATIONS = "keras.src.ops.numpy"
# The layer of our own by which members of a net learn (engine/own.py), and the name that Keras knows it by.
MEMBERS = "Members"
MEMBERS_REGISTERED = f"cerebro>{MEMBERS}"


def layers(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all layers in a piece of an architecture's JSON, including layers inside other layers."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        config = found.get("config")
        if isinstance(config, dict) and "name" in config and not _is_no_layer(found):
            yield found
        value = [own for key, own in found.items() if key != "inbound_nodes"]
    if isinstance(value, list):
        for one in cast("list[Any]", value):
            yield from layers(one)


def freeze_inside(model: Any) -> None:
    """Give the layers of each model in an architecture's JSON the model's own `"trainable": false`.

    Keras looks only at the layers. The model then says that it trains, so that single layers of it can.
    """
    for one in layers(model):
        config = one["config"]
        if isinstance(config.get("layers"), list) and config.get("trainable") is False:
            config["trainable"] = True
            for inner in layers(config["layers"]):
                if inner["class_name"] != "InputLayer":
                    inner["config"]["trainable"] = False


def _is_no_layer(value: Mapping[str, Any]) -> bool:
    """Return whether an object with a name is a type of numbers or an operation, and not a layer."""
    module = value.get("module") or "keras.layers"
    return value["class_name"].endswith("DTypePolicy") or module.startswith("keras.src.ops")


def name_of(layer: Mapping[str, Any]) -> str:
    return str(layer["config"]["name"])


def ends(value: Any) -> Iterator[str]:
    """Yield the names of a model's input or output layers, given the JSON of its inputs or outputs.

    Each is written as [name, node, tensor]; there may be one, a list of them, or an object with them.
    """
    if isinstance(value, dict):
        value = list(cast("dict[str, Any]", value).values())
    found = cast("list[Any]", value) if isinstance(value, list) else []
    if found and isinstance(found[0], str):
        yield found[0]
        return
    for one in found:
        yield from ends(one)


def sources(value: Any) -> list[str]:
    """Return the names of the layers whose outputs a layer of a functional model takes, given its JSON."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        history = found.get("keras_history")
        return [history[0]] if history else sources(found.get("inbound_nodes", list(found.values())))
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    return [name for own in listed for name in sources(own)]
