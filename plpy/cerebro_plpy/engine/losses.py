"""Losses that cerebro has in addition to the losses of Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cerebro_plpy.engine.backends import runtime

if TYPE_CHECKING:
    from cerebro_plpy.madlib.literal import Call


def quantile(y_true: Any, y_pred: Any, tau: float = 0.5) -> Any:
    """Return the pinball loss: an error weighs `tau` if the answer is too low, and 1 - `tau` if too high."""
    ops = runtime.keras().ops
    missing = ops.convert_to_tensor(y_true, y_pred.dtype) - y_pred
    return ops.mean(ops.maximum(tau * missing, (tau - 1) * missing), axis=-1)


def weighted_binary_crossentropy(
    y_true: Any, y_pred: Any, positive_weight: float, from_logits: bool = False
) -> Any:
    """Return the crossentropy in which a positive label counts as much as `positive_weight` negative ones."""
    ops = runtime.keras().ops
    y_true = ops.convert_to_tensor(y_true, y_pred.dtype)
    each = ops.binary_crossentropy(y_true, y_pred, from_logits=from_logits)
    return ops.mean(each * (1 + (positive_weight - 1) * y_true), axis=-1)


def weighted_categorical_crossentropy(
    y_true: Any, y_pred: Any, class_weights: list[float], from_logits: bool = False
) -> Any:
    """Return the crossentropy of each row, multiplied by the weight of the row's class."""
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
    """Return a registered loss in a form that accepts row weights.

    If the loss gives several numbers per row, such as one per class, row weights multiply their mean. Without
    row weights, the loss is called unchanged, so that it trains as with Keras alone.
    """
    base = runtime.keras().losses.Loss
    if type(loss).__call__ is not base.__call__:
        # The loss weighs rows by itself.
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
            """Return the loss in the shape of the row weights, with the mean over all further axes."""
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
