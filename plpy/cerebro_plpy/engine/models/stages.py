"""Makes frozen layers of an architecture train, as a config may ask for from some epoch on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from cerebro_plpy.madlib.layers import freeze_inside, layers, name_of


def thawed(architecture_json: str, patterns: Sequence[str]) -> str:
    """Return the architecture with all layers trainable whose names match a pattern.

    All layers inside these layers and around them become trainable, too. Other layers stay as they are.
    """
    model = json.loads(architecture_json)
    freeze_inside(model)
    for layer in layers(model["config"]["layers"]):
        inside = list(layers(list(layer["config"].values())))
        if _is_named(layer, patterns):
            _set_trainable([layer, *inside], trains=True)
        elif any(_is_named(one, patterns) for one in inside):
            if layer["config"].get("trainable") is False:
                # Those beside the named ones are frozen by themselves from now on.
                _set_trainable(inside, trains=False)
            _set_trainable([layer], trains=True)
    return json.dumps(model, sort_keys=True, separators=(",", ":"))


def _is_named(layer: Mapping[str, Any], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name_of(layer), pattern) for pattern in patterns)


def _set_trainable(found: Sequence[dict[str, Any]], *, trains: bool) -> None:
    for layer in found:
        if layer["class_name"] != "InputLayer":
            layer["config"]["trainable"] = trains


def names(architecture_json: str) -> list[str]:
    """Return the names of all layers of an architecture."""
    return [name_of(layer) for layer in layers(json.loads(architecture_json)["config"]["layers"])]
