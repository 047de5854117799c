"""Makes layers compute values from their weights in each call, where Keras caches the values.

Keras' Normalization turns mean and variance into tensors when it is built, adapted or loaded from a file, and
does not read its weights afterwards. Here the states of many configs replace the weights, and compiled
functions take the weights as arguments, so such a layer has to compute from its current weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cerebro_plpy.engine.backends import runtime


def follow_weights(model: Any) -> None:
    """Make Normalization layers compute mean and variance from their weights in each call.

    Keras computes them once and keeps them, so weights that are set later would have no effect. The bits are
    those of Keras, since the arithmetic is elementwise.
    """
    for layer in adaptable(model):
        layer.call = _following(layer, layer.call)


def adaptable(model: Any) -> Iterator[Any]:
    """Yield the Normalization layers of a model whose weights are statistics that `adapt` computes."""
    for layer in model._flatten_layers():
        if isinstance(layer, runtime.keras().layers.Normalization) and layer.input_mean is None:
            yield layer


def _following(layer: Any, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def derive_and_call(inputs: Any) -> Any:
        kept = layer.mean, layer.variance
        layer.finalize_state()
        try:
            return call(inputs)
        finally:
            # Tensors that a trace computes must not be kept after the trace.
            layer.mean, layer.variance = kept

    return derive_and_call
