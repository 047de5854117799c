"""Quantized layers: which kinds a net may hold, and why no others.

Of int8, kernels and scales stay as they are, whatever trains: adapters beside them do. Both are exact in the
32-bit floats of MADlib's form of weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MODE = "int8"
# Those whose int8 form has a gradient for what comes in, and takes adapters.
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
    """Return how a layer of an architecture is quantized; None if it is not."""
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
    """Return why a layer may not be quantized as it is; None if it may, or is not."""
    mode = mode_of(layer)
    if mode is None or (mode == MODE and layer.get("class_name") in LAYERS):
        return None
    allowed = f"Of quantized layers {', '.join(sorted(LAYERS))} with int8 are allowed."
    return f"{_REASONS[mode]} {allowed}" if mode in _REASONS else allowed


def is_quantized(layer: Any) -> bool:
    """Return whether a live layer is one of these, of which all but bias and adapters stays as it is."""
    return type(layer).__name__ in LAYERS and getattr(layer, "quantization_mode", None) == MODE
