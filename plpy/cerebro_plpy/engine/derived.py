"""Layers that compute from their weights once and keep what came out.

Keras' Normalization turns mean and variance into tensors when it is built, adapted or loaded from a file, and
looks at its weights no more. Here weights come and go with the states of many configs, and compiled functions
take them as arguments: such a layer has to compute from the weights of the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cerebro_plpy.engine.backends import runtime


def follow_weights(model: Any) -> None:
    """Let the layers of a model that keep derived tensors derive them in each call.

    The bits are the same: Keras traces these tensors as constants, and the arithmetic on them is elementwise.
    """
    for layer in adaptable(model):
        layer.call = _following(layer, layer.call)


def adaptable(model: Any) -> Iterator[Any]:
    """Give the layers whose weights are statistics that `adapt` has to fill in."""
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
            # What a trace computes must not outlive it.
            layer.mean, layer.variance = kept

    return derive_and_call
