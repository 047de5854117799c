"""Says which layers of an architecture can be computed again in the backward pass."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.madlib.layers import layers, name_of
from cerebro_plpy.madlib.nearest import unknown

_MODELS = frozenset({"Sequential", "Functional", "Model"})
_STEPWISE = frozenset(
    {"LSTM", "GRU", "SimpleRNN", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "Bidirectional"}
)


def kept(architecture_json: str) -> dict[str, str]:
    """Return the layers whose outputs must be kept for the backward pass, each with the reason."""
    found = {name_of(layer): _why_kept(layer) for layer in _layers(architecture_json)}
    return {name: why for name, why in found.items() if why is not None}


def check(names: Collection[str], architectures: Iterable[str]) -> None:
    """Raise an error if a named layer is in no architecture, or if it cannot be computed again."""
    known: set[str] = set()
    reasons: dict[str, str] = {}
    for text in architectures:
        known |= {name_of(layer) for layer in _layers(text)}
        reasons.update(kept(text))
    for name in names:
        if name not in known:
            raise unknown(f'option recompute names "{name}", and no net has such a layer', name, known)
        if name in reasons:
            raise CerebroError(
                f'option recompute names "{name}", which cannot be computed again',
                detail=f"The reason: {reasons[name]}.",
                hint='Leave it out, or write {"recompute": true}: then all layers are that can be.',
                sqlstate=NOT_SUPPORTED,
            )


def _layers(architecture_json: str) -> list[dict[str, Any]]:
    found = layers(json.loads(architecture_json)["config"].get("layers", []))
    return [layer for layer in found if layer["class_name"] != "InputLayer"]


def _why_kept(layer: dict[str, Any]) -> str | None:
    if layer["class_name"] in _MODELS:
        # The layers within are looked at one by one.
        return None
    for one in (layer, *layers(list(layer["config"].values()))):
        if one["class_name"] in _STEPWISE:
            return f"{one['class_name']} goes step by step, and keeps as much when it is computed again"
        if one["config"].get("activity_regularizer") is not None:
            return "its activity_regularizer adds to the loss"
        module = one.get("module") or "keras.layers"
        if not module.startswith(("keras", "cerebro_plpy.")):
            return f"{one['class_name']} is not one of Keras' own layers"
    return None
