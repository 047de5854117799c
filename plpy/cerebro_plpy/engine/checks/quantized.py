"""Quantized layers: which kinds a net may hold, and why no others.

Only int8 is allowed: training never changes the kernels and scales of such a layer, only adapters beside
them, and both are exact in the 32-bit floats of MADlib's form of weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MODE = "int8"
# Layers whose int8 form has a gradient with respect to its input, and takes adapters.
LAYERS = frozenset({"Dense", "EinsumDense", "Embedding"})
POLICY = "QuantizedDTypePolicy"
# Policies of the other kinds: how each begins as a text.
_OTHERS = {
    "Int4DTypePolicy": "int4",
    "QuantizedFloat8DTypePolicy": "float8",
    "GPTQDTypePolicy": "gptq",
    "AWQDTypePolicy": "awq",
}
_REASONS = {
    "int4": "Its kernels have two numbers in a byte, which no adapter here can be added to.",
    "float8": "Its scales change in training, so that nothing of it could stand once for all configs.",
    "gptq": "What calibrated it is neither in the JSON nor in the weights.",
    "awq": "What calibrated it is neither in the JSON nor in the weights.",
}


def mode_of(layer: Mapping[str, Any]) -> str | None:
    """Return how a layer of an architecture is quantized, for example "int8"; None if it is not."""
    config = layer.get("config")
    policy = config.get("dtype") if isinstance(config, Mapping) else None
    if isinstance(policy, Mapping):
        kind, given = policy.get("class_name"), policy.get("config")
        if kind in _OTHERS:
            return _OTHERS[kind]
        if kind == POLICY:
            return str(given.get("mode")) if isinstance(given, Mapping) else "unknown"
        policy = given.get("name") if isinstance(given, Mapping) else None
    # Else it is a plain type of numbers.
    if not isinstance(policy, str) or "_from_" not in policy:
        return None
    return next((mode for mode in (MODE, *_REASONS) if policy.startswith(mode)), None)


def refusal(layer: Mapping[str, Any]) -> str | None:
    """Return why the quantization of a layer is not allowed; None if there is nothing to refuse."""
    mode = mode_of(layer)
    if mode is None or (mode == MODE and layer.get("class_name") in LAYERS):
        return None
    allowed = f"Of quantized layers {', '.join(sorted(LAYERS))} with int8 are allowed."
    return f"{_REASONS[mode]} {allowed}" if mode in _REASONS else allowed


def is_quantized(layer: Any) -> bool:
    """Return whether a built layer is quantized as int8, so that only its bias and adapters can change."""
    return type(layer).__name__ in LAYERS and getattr(layer, "quantization_mode", None) == MODE
