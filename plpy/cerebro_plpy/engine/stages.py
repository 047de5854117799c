"""Layers that train from a later epoch on: the architecture as it is then."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any


def thawed(architecture_json: str, patterns: Sequence[str]) -> str:
    """The architecture in which the layers of these names train, with all that is inside of them."""
    model = json.loads(architecture_json)
    for layer in _layers(model["config"]["layers"]):
        if any(fnmatchcase(layer["config"]["name"], pattern) for pattern in patterns):
            for one in (layer, *_layers(list(layer["config"].values()))):
                if one["class_name"] != "InputLayer":
                    one["config"]["trainable"] = True
    return json.dumps(model, sort_keys=True, separators=(",", ":"))


def names(architecture_json: str) -> list[str]:
    """The names of all layers."""
    return [layer["config"]["name"] for layer in _layers(json.loads(architecture_json)["config"]["layers"])]


def _layers(value: Any) -> Iterator[dict[str, Any]]:
    """All layers, those inside of others too."""
    if isinstance(value, dict):
        config = value.get("config")
        if isinstance(config, dict) and "name" in config and "class_name" in value and _is_layer(value):
            yield value
        value = [own for key, own in value.items() if key != "inbound_nodes"]
    if isinstance(value, list):
        for one in value:
            yield from _layers(one)


def _is_layer(value: dict[str, Any]) -> bool:
    """What else has a name: a type of numbers, and an operation that is no layer."""
    return not value["class_name"].endswith("DTypePolicy") and not (value.get("module") or "").startswith(
        "keras.src.ops"
    )
