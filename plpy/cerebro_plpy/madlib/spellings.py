"""All accepted spellings of losses and metrics, and the name that Keras 3 gets for each."""

from __future__ import annotations

import re
from typing import Final

from cerebro_plpy.madlib.names import LOSSES, METRICS, OWN_LOSSES


def snake(name: str) -> str:
    """Return the name that Keras derives from a class name: auc from AUC, mean_io_u from MeanIoU."""
    words = re.sub(r"\W+", "", name)
    words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", words)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()


_SHORT: Final = {
    "bce": "BinaryCrossentropy",
    "mae": "MeanAbsoluteError",
    "mape": "MeanAbsolutePercentageError",
    "mse": "MeanSquaredError",
    "msle": "MeanSquaredLogarithmicError",
}
_ERRORS: Final = {**_SHORT, **{short.upper(): name for short, name in _SHORT.items()}}
_KERAS_LOSS: Final = {**_ERRORS, "kld": "KLDivergence", "KLD": "KLDivergence"}
# Classes of keras.losses that keras.losses.get does not find by any text.
_LOSS_BY_CLASS_ONLY: Final = {"CategoricalGeneralizedCrossEntropy"}
_LOSS_FUNCTION: Final = {"CTC": "ctc", "KLDivergence": "kl_divergence"}

# Texts that keras.losses.get (and `crossentropy`, which compile resolves) understands, with their class.
LOSS_TEXTS: Final[dict[str, str]] = {
    **{name: name for name in LOSSES if name not in _LOSS_BY_CLASS_ONLY},
    **{_LOSS_FUNCTION.get(name, snake(name)): name for name in LOSSES if name not in _LOSS_BY_CLASS_ONLY},
    **_KERAS_LOSS,
    "crossentropy": "CategoricalCrossentropy",
    "ce": "CategoricalCrossentropy",
}
METRIC_TEXTS: Final[dict[str, str]] = {
    **{name: name for name in METRICS},
    **{snake(name): name for name in METRICS},
    **_ERRORS,
    "accuracy": "Accuracy",
    "acc": "Accuracy",
}

# Texts of cerebro's own losses, which are metrics as well.
OWN_TEXTS: Final = {
    **{name: name for name in OWN_LOSSES},
    **{snake(name): name for name in OWN_LOSSES},
    **dict.fromkeys(("Pinball", "pinball", "pinball_loss", "quantile_loss"), "Quantile"),
}
# Metrics that MADlib's load_top_k_accuracy_function makes.
TOP_K: Final = re.compile(r"top_([1-9][0-9]{0,4})_accuracy")

# Texts of Keras 2 and of common use that Keras 3 no longer takes.
OLD_LOSSES: Final = {
    "categorical_generalized_cross_entropy": "CategoricalGeneralizedCrossEntropy",
    "cosine": "cosine_similarity",
    "cosine_proximity": "cosine_similarity",
    "huber_loss": "huber",
    "kullback_leibler_divergence": "kl_divergence",
    "logcosh": "log_cosh",
}
OLD_METRICS: Final = {
    "KLD": "kl_divergence",
    "cosine": "cosine_similarity",
    "cosine_proximity": "cosine_similarity",
    "fbeta_score": "f_beta_score",
    "iou": "io_u",
    "kld": "kl_divergence",
    "kullback_leibler_divergence": "kl_divergence",
    "log_cosh": "log_cosh_error",
    "logcosh": "log_cosh_error",
    "mean_iou": "mean_io_u",
}
