"""Losses that come with cerebro, beside those of Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import runtime

if TYPE_CHECKING:
    from cerebro_plpy.madlib.literal import Call


def quantile(y_true: Any, y_pred: Any, tau: float = 0.5) -> Any:
    """The pinball loss: too low is weighted by tau, too high by 1 - tau."""
    ops = runtime.keras().ops
    missing = ops.convert_to_tensor(y_true, y_pred.dtype) - y_pred
    return ops.mean(ops.maximum(tau * missing, (tau - 1) * missing), axis=-1)


def weighted_binary_crossentropy(
    y_true: Any, y_pred: Any, positive_weight: float, from_logits: bool = False
) -> Any:
    """The cross-entropy in which a positive counts as so many negatives."""
    ops = runtime.keras().ops
    y_true = ops.convert_to_tensor(y_true, y_pred.dtype)
    each = ops.binary_crossentropy(y_true, y_pred, from_logits=from_logits)
    return ops.mean(each * (1 + (positive_weight - 1) * y_true), axis=-1)


def weighted_categorical_crossentropy(
    y_true: Any, y_pred: Any, class_weights: list[float], from_logits: bool = False
) -> Any:
    """The cross-entropy in which each row counts as much as its class."""
    ops = runtime.keras().ops
    y_true = ops.convert_to_tensor(y_true, y_pred.dtype)
    weights = ops.sum(y_true * ops.convert_to_tensor(class_weights, y_pred.dtype), axis=-1)
    return weights * ops.categorical_crossentropy(y_true, y_pred, from_logits=from_logits)


_FUNCTIONS = {
    "Quantile": quantile,
    "WeightedBinaryCrossentropy": weighted_binary_crossentropy,
    "WeightedCategoricalCrossentropy": weighted_categorical_crossentropy,
}


def is_own(call: Call) -> bool:
    return call.function is None and call.name in _FUNCTIONS


def loss(call: Call) -> Any:
    wrapper = runtime.keras().src.losses.losses.LossFunctionWrapper
    return wrapper(_FUNCTIONS[call.name], **dict(call.kwargs))


def metric(call: Call) -> Any:
    return runtime.keras().metrics.MeanMetricWrapper(_FUNCTIONS[call.name], **dict(call.kwargs))
