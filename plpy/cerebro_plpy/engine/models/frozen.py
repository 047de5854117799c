"""Finds the variables of a model that no training changes, so that a stored state leaves them out."""

from __future__ import annotations

from typing import Any

from cerebro_plpy.engine import own
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import hub, quantized

# This layer writes the kernel of the layer that it wraps in every training step, trainable or not.
_WRITING = "SpectralNormalization"


def frozen(model: Any) -> set[int]:
    """Return the ids of a model's frozen variables, which no training changes.

    They are weights that are not trainable or that LoRA keeps, statistics of a frozen BatchNormalization, and
    kernels of quantized layers. All other variables may change: seeds, moving statistics, and whatever a
    registered layer has.
    """
    layers = list(model._flatten_layers(include_self=False, recursive=True))
    trained = {id(variable) for variable in model.trainable_variables}
    found: set[int] = set()
    for layer in layers:
        found |= {id(v) for v in layer._trainable_variables}
        if type(layer).__name__ == "BatchNormalization" and not layer.trainable:
            # In inference mode: it reads its statistics.
            found |= {id(v) for v in layer._non_trainable_variables}
        if quantized.is_quantized(layer):
            found |= {id(v) for v in layer._non_trainable_variables}
    return found - trained - {id(v) for layer in layers if _may_write(layer) for v in layer.variables}


def hold(model: Any) -> None:
    """Freeze the layers inside frozen layers, and inside frozen models in the model.

    Keras makes the inner layers when it builds a layer, and lets them train: with a frozen
    MultiHeadAttention, model_from_json returns another net than the one whose to_json was called.
    """
    for layer in model.layers:
        if isinstance(layer, runtime.keras().Model) and layer.trainable:
            hold(layer)
        elif not layer.trainable:
            for part in layer._flatten_layers(include_self=False):
                part.trainable = False


def _may_write(layer: Any) -> bool:
    kind = type(layer)
    return not (hub.is_known(kind) or own.is_own(kind)) or kind.__name__ == _WRITING
