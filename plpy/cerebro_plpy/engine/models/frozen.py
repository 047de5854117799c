"""Finds the variables of a model that no training changes: they need not go with a state to each visit."""

from __future__ import annotations

from typing import Any

from cerebro_plpy.engine import own
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import hub, quantized

# It writes its layer's kernel in every training step, trainable or not.
_WRITING = "SpectralNormalization"


def frozen(model: Any) -> set[int]:
    """Return the ids of these variables: weights of layers of Keras' own that are not trainable, or that LoRA
    keeps.

    Anything else that is not trained may change all the same: seeds, moving statistics, whatever a registered
    layer has.
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
    """Freeze what is inside frozen layers. Keras makes it when it builds them, and lets it train: with a
    frozen MultiHeadAttention, model_from_json gives another net than the one whose to_json was called.

    Models within are no more than their layers, each of which says for itself.
    """
    for layer in model.layers:
        if isinstance(layer, runtime.keras().Model):
            hold(layer)
        elif not layer.trainable:
            for part in layer._flatten_layers(include_self=False):
                part.trainable = False


def _may_write(layer: Any) -> bool:
    kind = type(layer)
    return not (hub.is_known(kind) or own.is_own(kind)) or kind.__name__ == _WRITING
