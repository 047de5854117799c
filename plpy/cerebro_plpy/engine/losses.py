"""Losses that come with cerebro, beside those of Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cerebro_plpy.engine.backends import runtime

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
    """The cross-entropy in which a positive counts as `positive_weight` negatives."""
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


def weighable(loss: Any) -> Any:
    """Have a registered loss take row weights, also one that gives a number for each row and class.

    Without weights it is called as it is, so that it trains as with Keras alone.
    """
    base = runtime.keras().losses.Loss
    if type(loss).__call__ is not base.__call__:
        # It weighs rows by itself.
        return loss

    class Weighable(base):
        def __init__(self) -> None:
            super().__init__(name=loss.name, reduction=loss.reduction, dtype=loss.dtype)

        def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            if sample_weight is None:
                return loss(y_true, y_pred)
            self._axes = len(sample_weight.shape)
            return super().__call__(y_true, y_pred, sample_weight)

        def call(self, y_true: Any, y_pred: Any) -> Any:
            """Give one number for each weight: the mean of a row's."""
            values = runtime.keras().ops.convert_to_tensor(loss.call(y_true, y_pred))
            rest = tuple(range(self._axes, len(values.shape)))
            return runtime.keras().ops.mean(values, axis=rest) if rest else values

    return Weighable()


def is_own(call: Call) -> bool:
    return call.function is None and call.name in _FUNCTIONS


def loss(call: Call) -> Any:
    wrapper = runtime.keras().src.losses.losses.LossFunctionWrapper
    return wrapper(_FUNCTIONS[call.name], **dict(call.kwargs))


def metric(call: Call) -> Any:
    return runtime.keras().metrics.MeanMetricWrapper(_FUNCTIONS[call.name], **dict(call.kwargs))
