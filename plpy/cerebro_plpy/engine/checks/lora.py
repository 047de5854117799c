"""Low-rank adapters (LoRA): two small matrices that correct the kernel of a layer, which does not train."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cerebro_plpy.engine.checks import quantized

Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Adapter:
    """The places of a layer's kernel and of its two adapter matrices among the model's weights."""

    kernel: int
    a: int
    b: int
    scale: float
    # Nothing can be added to a quantized kernel.
    adds: bool = True


def adapters(model: Any) -> tuple[Adapter, ...]:
    places = {id(weight): place for place, weight in enumerate(model.weights)}
    layers = model._flatten_layers(include_self=False, recursive=True)
    return tuple(_adapter(layer, places) for layer in layers if getattr(layer, "lora_enabled", False))


def _adapter(layer: Any, places: dict[int, int]) -> Adapter:
    embeds = hasattr(layer, "lora_embeddings_a")
    kernel, matrix = (layer._embeddings, "embeddings") if embeds else (layer._kernel, "kernel")
    return Adapter(
        kernel=places[id(kernel)],
        a=places[id(getattr(layer, f"lora_{matrix}_a"))],
        b=places[id(getattr(layer, f"lora_{matrix}_b"))],
        scale=layer.lora_alpha / layer.lora_rank,
        adds=not quantized.is_quantized(layer),
    )


def can_merge(found: Collection[Adapter]) -> bool:
    """Return whether there are adapters, and all of them can be added to their kernels."""
    return bool(found) and all(one.adds for one in found)


def added(found: Collection[Adapter]) -> set[int]:
    """Return the places of the adapter matrices, which the model without adapters does not have."""
    return {place for one in found for place in (one.a, one.b)}


def base_size(shapes: Shapes, found: Collection[Adapter]) -> int:
    """Return how many numbers the weights of the model have without the adapter matrices."""
    more = added(found)
    return sum(math.prod(shape) for place, shape in enumerate(shapes) if place not in more)


def merged(weights: Sequence[np.ndarray], found: Collection[Adapter]) -> list[np.ndarray]:
    """Return the weights of a model without adapters that computes the same as the model with adapters."""
    own = list(weights)
    for one in found:
        own[one.kernel] = own[one.kernel] + np.float32(one.scale) * (own[one.a] @ own[one.b])
    more = added(found)
    return [array for place, array in enumerate(own) if place not in more]


def without(architecture_json: str) -> str:
    """Return the architecture without adapters."""
    return json.dumps(_without(json.loads(architecture_json)))


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(one) for key, one in value.items() if key not in ("lora_rank", "lora_alpha")}
    return [_without(one) for one in value] if isinstance(value, list) else value
