"""Adds Keras' low-rank adapters (LoRA) to layers of a trained net, and freezes layers that must not train."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.layers import ends, freeze_inside, name_of
from cerebro_plpy.madlib.layers import layers as layers_in
from cerebro_plpy.madlib.nearest import unknown

# Classes of layers to which Keras adds an adapter by an argument.
ADAPTABLE = ("Dense", "EinsumDense", "Embedding", "Conv1D", "Conv2D", "Conv3D")
MOST_RANK = 4096


def adapted(
    model_arch: str, rank: int | None, layers: Sequence[str] | None, train: Sequence[str] | None
) -> str:
    """Return the architecture with adapters on `layers`; all layers but `layers` and `train` are frozen.

    `layers` and `train` are patterns of layer names. By default, `train` is the layers that give the outputs,
    and `layers` all other layers of a class that can have an adapter. `rank` is the rank of the adapters.
    """
    if rank is None or not 1 <= rank <= MOST_RANK:
        raise CerebroError(f"lora_rank is {rank}", detail=f"It must be at least 1 and at most {MOST_RANK}.")
    model = json.loads(model_arch)
    freeze_inside(model)
    every = list(layers_in(model))
    outputs = _outputs(model)
    trained = set(outputs) if train is None else _matching(every, "train", train)
    if layers is None:
        chosen = {name_of(one) for one in every if one["class_name"] in ADAPTABLE} - trained
    else:
        chosen = _matching(every, "layers", layers)
    _check(every, chosen, trained)
    for one in every:
        name = name_of(one)
        if name in chosen:
            one["config"] |= {"lora_rank": rank, "trainable": True}
        elif name in trained or _holds(one, chosen | trained):
            # Trainable is the default.
            one["config"].pop("trainable", None)
        else:
            _freeze(one)
    return json.dumps(model)


def _check(every: Sequence[Mapping[str, Any]], chosen: set[str], trained: set[str]) -> None:
    both = sorted(chosen & trained)
    if both:
        raise CerebroError(
            f'layer "{both[0]}" would have an adapter and train whole',
            hint="Name it in layers or in train, not in both.",
        )
    for one in every:
        if name_of(one) in chosen and one["class_name"] not in ADAPTABLE:
            raise CerebroError(
                f'layer "{name_of(one)}" is a {one["class_name"]}, which has no adapter',
                detail=f"Keras has them for {', '.join(ADAPTABLE)}.",
            )
        if name_of(one) in chosen and one["config"].get("lora_rank"):
            raise CerebroError(f'layer "{name_of(one)}" has an adapter already')
    if not chosen:
        raise CerebroError(
            "no layer of the net can have an adapter",
            detail=f"Keras has them for {', '.join(ADAPTABLE)}. What gives the outputs trains whole.",
        )


_MODELS = ("Functional", "Sequential", "Model")


def _holds(layer: Mapping[str, Any], names: set[str]) -> bool:
    """Return whether `layer` is itself a model, or contains a layer with one of the given names."""
    return layer["class_name"] in _MODELS or any(
        name_of(one) in names for one in layers_in(list(layer["config"].values()))
    )


def _freeze(layer: dict[str, Any]) -> None:
    if layer["class_name"] != "InputLayer":
        layer["config"]["trainable"] = False


def _outputs(model: Mapping[str, Any]) -> list[str]:
    """Return the names of the layers that give the outputs of a model.

    For a Sequential, this is the last layer of a class that can have an adapter.
    """
    config = model["config"]
    if model["class_name"] == "Sequential":
        can = [one for one in config["layers"] if one["class_name"] in ADAPTABLE]
        return [name_of(can[-1])] if can else []
    return list(ends(config.get("output_layers", [])))


def _matching(every: Sequence[Mapping[str, Any]], what: str, patterns: Sequence[str]) -> set[str]:
    """Return the names of the layers that match one of the patterns, in which * stands for any characters.

    Raise an error that names the argument `what` if a pattern matches no layer.
    """
    names = [name_of(one) for one in every]
    found: set[str] = set()
    for pattern in patterns:
        own = {name for name in names if fnmatchcase(name, pattern)}
        if not own:
            raise unknown(f'{what} names "{pattern}", and the net has no such layer', pattern, names)
        found |= own
    return found
