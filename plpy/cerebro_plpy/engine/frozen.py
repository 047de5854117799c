"""Which variables of a model no training changes: they need not go with a state from visit to visit."""

from __future__ import annotations

from typing import Any

# It writes its layer's kernel in every training step, trainable or not.
_WRITING = "SpectralNormalization"


def frozen(model: Any) -> set[int]:
    """The ids of these variables: weights of layers of Keras' own that are not trainable, or that LoRA keeps.

    What else is not trained may change all the same: seeds, moving statistics, whatever a registered layer
    has.
    """
    layers = list(model._flatten_layers(include_self=False, recursive=True))
    trained = {id(variable) for variable in model.trainable_variables}
    found: set[int] = set()
    for layer in layers:
        found |= {id(v) for v in layer._trainable_variables}
        if type(layer).__name__ == "BatchNormalization" and not layer.trainable:
            # In inference mode: it reads its statistics.
            found |= {id(v) for v in layer._non_trainable_variables}
    return found - trained - {id(v) for layer in layers if _may_write(layer) for v in layer.variables}


def _may_write(layer: Any) -> bool:
    own = type(layer)
    return not own.__module__.startswith("keras.") or own.__name__ == _WRITING
