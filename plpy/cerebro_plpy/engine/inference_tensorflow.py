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


def compiled(model: Any, inputs: tuple[Shape, ...]) -> Forward:
    """Give a function of the model's variables and its inputs."""
    return Forward(model, inputs)


def bound(forward: Forward, variables: list[Any]) -> Callable[[list[np.ndarray]], list[Any]]:
    """Give a function of the inputs alone.

    TensorFlow looks at every tensor that it is given: on one row that would cost more than the model.
    """
    return forward.bound(variables)


class Forward:
    """The traced function, as one of everything and as one of the inputs."""

    def __init__(self, model: Any, inputs: tuple[Shape, ...]) -> None:
        self._model = model
        self._inputs = [tf.TensorSpec((None, *shape), tf.float32) for shape in inputs]
        variables = [*model.trainable_variables, *model.non_trainable_variables]
        self._split, self._end = len(model.trainable_variables), len(variables)
        signature = [tf.TensorSpec(v.shape, v.dtype) for v in variables] + self._inputs
        self._concrete = _traced(self._run, signature)

    def __call__(self, variables: list[Any], batch: list[np.ndarray]) -> list[Any]:
        return [output.numpy() for output in self._concrete(*variables, *map(tf.constant, batch))]

    def bound(self, variables: list[Any]) -> Callable[[list[np.ndarray]], list[Any]]:
        concrete = _traced(lambda *batch: self._run(*variables, *batch), self._inputs)
        return lambda batch: [output.numpy() for output in concrete(*map(tf.constant, batch))]

    def _run(self, *tensors: Any) -> Any:
        found, _ = self._model.stateless_call(
            list(tensors[: self._split]),
            list(tensors[self._split : self._end]),
            forms.pack(self._model, list(tensors[self._end :])),
            training=False,
        )
        return runtime.keras().tree.flatten(found)


def _traced(run: Callable[..., Any], signature: list[Any]) -> Any:
    return tf.function(run, input_signature=signature, autograph=False).get_concrete_function()
