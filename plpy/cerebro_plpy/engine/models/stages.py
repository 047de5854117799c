"""Makes frozen layers of an architecture train, as a config may ask for from some epoch on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase

from cerebro_plpy.madlib.layers import layers, name_of


def thawed(architecture_json: str, patterns: Sequence[str]) -> str:
    """Return the architecture with all layers trainable whose names match a pattern.

    All layers inside these layers become trainable, too. Other layers stay as they are.
    """
    model = json.loads(architecture_json)
    for layer in layers(model["config"]["layers"]):
        if any(fnmatchcase(name_of(layer), pattern) for pattern in patterns):
            for one in (layer, *layers(list(layer["config"].values()))):
                if one["class_name"] != "InputLayer":
                    one["config"]["trainable"] = True
    return json.dumps(model, sort_keys=True, separators=(",", ":"))


def names(architecture_json: str) -> list[str]:
    """Return the names of all layers of an architecture."""
    return [name_of(layer) for layer in layers(json.loads(architecture_json)["config"]["layers"])]
