"""The losses of the server's package as Keras classes, to load models that were trained with them."""

from __future__ import annotations

from typing import Any


def make_losses(keras: Any) -> dict[str, Any]:
    """Return the loss classes by name: Quantile and the weighted crossentropies."""
    ops = keras.ops

    class Own(keras.losses.Loss):
        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), **self.arguments}

    class Quantile(Own):
        def __init__(self, tau: float = 0.5, **common: Any) -> None:
            super().__init__(**{"name": "quantile", **common})
            self.tau = tau
            self.arguments = {"tau": tau}

        def call(self, y_true: Any, y_pred: Any) -> Any:
            missing = y_true - y_pred
            return ops.mean(ops.maximum(self.tau * missing, (self.tau - 1) * missing), axis=-1)

    class WeightedBinaryCrossentropy(Own):
        def __init__(self, positive_weight: float, from_logits: bool = False, **common: Any) -> None:
            super().__init__(**{"name": "weighted_binary_crossentropy", **common})
            self.positive_weight, self.from_logits = positive_weight, from_logits
            self.arguments = {"positive_weight": positive_weight, "from_logits": from_logits}

        def call(self, y_true: Any, y_pred: Any) -> Any:
            each = ops.binary_crossentropy(y_true, y_pred, from_logits=self.from_logits)
            return ops.mean(each * (1 + (self.positive_weight - 1) * y_true), axis=-1)

    class WeightedCategoricalCrossentropy(Own):
        def __init__(self, class_weights: list[float], from_logits: bool = False, **common: Any) -> None:
            super().__init__(**{"name": "weighted_categorical_crossentropy", **common})
            self.class_weights, self.from_logits = class_weights, from_logits
            self.arguments = {"class_weights": class_weights, "from_logits": from_logits}

        def call(self, y_true: Any, y_pred: Any) -> Any:
            weights = ops.sum(y_true * ops.convert_to_tensor(self.class_weights, y_pred.dtype), axis=-1)
            return weights * ops.categorical_crossentropy(y_true, y_pred, from_logits=self.from_logits)

    return {
        each.__name__: each
        for each in (Quantile, WeightedBinaryCrossentropy, WeightedCategoricalCrossentropy)
    }
