"""The forward pass on TensorFlow: one graph for every number of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from . import forms, runtime
from .architecture import Shape

FIXED_ROWS = False


def tensor(array: np.ndarray) -> Any:
    return tf.constant(array)


def compiled(model: Any, inputs: tuple[Shape, ...]) -> Callable[[list[Any], list[np.ndarray]], list[Any]]:
    """Give a function of the model's variables and its inputs.

    The concrete function takes its tensors as they are; on one row the checks around it would cost as much
    as the model.
    """
    trainable, others = model.trainable_variables, model.non_trainable_variables
    split, end = len(trainable), len(trainable) + len(others)

    def run(*tensors: Any) -> Any:
        batch = forms.pack(model, list(tensors[end:]))
        found, _ = model.stateless_call(
            list(tensors[:split]), list(tensors[split:end]), batch, training=False
        )
        return runtime.keras().tree.flatten(found)

    signature = [tf.TensorSpec(v.shape, v.dtype) for v in (*trainable, *others)]
    signature += [tf.TensorSpec((None, *shape), tf.float32) for shape in inputs]
    concrete = tf.function(run, input_signature=signature, autograph=False).get_concrete_function()

    def call(variables: list[Any], batch: list[np.ndarray]) -> list[Any]:
        return [output.numpy() for output in concrete(*variables, *map(tf.constant, batch))]

    return call
