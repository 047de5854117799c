"""The names that a registered function must not have: names that Keras or this package uses."""

from __future__ import annotations

import re
from typing import Final

from cerebro_plpy import errors
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import validate
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.names import LOSSES, METRICS, OPTIMIZERS, SCHEDULES
from cerebro_plpy.madlib.nearest import fold
from cerebro_plpy.madlib.spellings import LOSS_TEXTS, METRIC_TEXTS, OLD_LOSSES, OLD_METRICS, OWN_TEXTS

# Words that results, summaries and grids use for other things, and words that say nothing.
_WORDS: Final = (
    "acc compile crossentropy ce false function functional lambda layer learning_rate loss metric metrics"
    " model none null object optimizer public sequential true val_loss y_pred y_true"
).split()
_FAMILIES: Final = re.compile(r"(keras|tf|tensorflow|jax|torch|numpy|np|cerebro)|top\d*accuracy")
_OURS: Final = (
    LOSSES, METRICS, OPTIMIZERS, SCHEDULES, LOSS_TEXTS, METRIC_TEXTS, OLD_LOSSES, OLD_METRICS, OWN_TEXTS,
    _WORDS,
    validate.MODELS, validate.LAYERS, validate.INITIALIZERS, validate.REGULARIZERS, validate.CONSTRAINTS,
    validate.POLICIES, validate.ACTIVATIONS,
)  # fmt: skip
# Modules of the installed Keras, which may have more names than the lists above.
_MODULES: Final = (
    "losses metrics layers activations initializers regularizers constraints optimizers dtype_policies models"
).split()


def check(name: str) -> None:
    if not _is_taken(fold(name)):
        return
    raise CerebroError(
        f"{name} is a name of Keras' or of cerebro's own",
        detail="Names are compared without their case and underscores.",
        hint=f"Register it with another name, such as my_{name}.",
        sqlstate=errors.DUPLICATE_OBJECT,
    )


def _is_taken(folded: str) -> bool:
    keras = runtime.keras()
    installed = (
        *(dir(getattr(keras, module)) for module in _MODULES), dir(keras.optimizers.schedules), dir(keras),
    )  # fmt: skip
    known = (name for names in (*_OURS, *installed) for name in names)
    return bool(_FAMILIES.fullmatch(folded)) or any(folded == fold(name) for name in known)
