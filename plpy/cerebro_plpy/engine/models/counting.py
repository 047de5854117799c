"""Counts the work of a net: operations for one row by family of layers, and the number of layers.

Estimates of times are based on these counts (`planner/estimating/rates.py`), which need only shapes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DENSE, CONVOLUTION, RECURRENT, ATTENTION, EMBEDDING = (
    "dense", "convolution", "recurrent", "attention", "embedding",
)  # fmt: skip
_RECURRENT = frozenset(
    {"LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"}
)
# The last two are layers of KerasHub.
_EMBEDDING = frozenset({"Embedding", "PositionEmbedding", "TokenAndPositionEmbedding"})
_ATTENTION = frozenset({"MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention"})


def flops(layer: Any) -> int:
    """Return a layer's operations for one row: two for each weight, at each place where it is used."""
    weights = sum(math.prod(w.shape) for w in getattr(layer, "weights", []) if len(w.shape) > 1)
    if family(layer) == EMBEDDING:
        return 0
    return 2 * weights * _places(layer)


def family(layer: Any) -> str:
    name = type(layer).__name__
    if name in _EMBEDDING:
        return EMBEDDING
    if name in _RECURRENT:
        return RECURRENT
    if name in _ATTENTION:
        return ATTENTION
    return CONVOLUTION if "Conv" in name else DENSE


def work(layers: list[Any]) -> Mapping[str, float]:
    """Return counts of a net's work for one row, by name.

    They are the operations of each family of layers, and the numbers of layers, of steps that recurrent
    layers compute one after the other, and of values in outputs.
    """
    found: dict[str, float] = {"layers": len(layers), "steps": 0, "numbers": 0}
    for layer in layers:
        kind = family(layer)
        found[kind] = found.get(kind, 0) + flops(layer)
        shape = _output_shape(layer)
        found["numbers"] += math.prod(d or 1 for d in shape)
        if kind == RECURRENT:
            found["steps"] += _timesteps(layer) * (2 if type(layer).__name__ == "Bidirectional" else 1)
        if kind == EMBEDDING:
            found[EMBEDDING] += math.prod(d or 1 for d in shape)
    return found


def _timesteps(layer: Any) -> int:
    try:
        return int(layer.input.shape[1] or 1)
    except Exception:
        return 1


def _output_shape(layer: Any) -> tuple[int | None, ...]:
    try:
        shape = layer.output.shape
    except Exception:
        return ()
    return tuple(shape[1:]) if isinstance(shape, tuple) else ()


def _places(layer: Any) -> int:
    try:
        before, after = layer.input.shape, layer.output.shape
    except Exception:
        return 1
    if not isinstance(before, tuple) or not isinstance(after, tuple):
        return 1
    # Recurrent layers use their weights at each step, also where only the last output is given.
    shape = before if len(before) == 3 and len(after) == 2 else after
    if getattr(layer, "data_format", None) == "channels_first":
        return math.prod(d or 1 for d in shape[2:])
    return math.prod(d or 1 for d in shape[1:-1])
