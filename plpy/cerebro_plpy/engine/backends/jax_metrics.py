"""Code that all loops on JAX share: metrics as arrays, and batches in the form that Keras' steps take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from cerebro_plpy.engine.backends.interfaces import Feed
from cerebro_plpy.engine.backends.jax_given import numbers
from cerebro_plpy.engine.backends.jax_stacks import settled
from cerebro_plpy.engine.models import forms


def release_values(variables: Iterable[Any]) -> None:
    """Drop the values that Keras has given to variables, to save memory.

    The loops have arrays of their own: with both, a large net would be in memory twice.
    """
    for variable in variables:
        variable._value = None


class ArrayLoop:
    """A base class for loops on JAX: it holds the metrics, and numbers such as Adam's `beta_1`, as arrays.

    Subclasses decide where the weights lie. Keras' own variables are used only to read results.
    """

    def __init__(self, model: Any, inputs: Sequence[str]) -> None:
        self._model, self._inputs = model, inputs
        self._given = settled(numbers(model.optimizer, inputs))
        self.metrics_arrays: list[Any] = [variable.value for variable in model.metrics_variables]

    def give(self, optimizer: Any) -> None:
        self._given = settled(numbers(optimizer, self._inputs))

    def start_pass(self) -> None:
        self.reset_metrics()

    def reset_metrics(self) -> None:
        self._model.reset_metrics()
        self.metrics_arrays = [settled(variable.value) for variable in self._model.metrics_variables]

    def count_step_bytes(self, feed: Feed, batch_size: int) -> int | None:
        return None

    def metrics(self) -> list[np.ndarray]:
        return [np.asarray(array) for array in self.metrics_arrays]

    def set_metrics(self, arrays: list[np.ndarray]) -> None:
        self.metrics_arrays = [
            settled(jnp.asarray(array, variable.dtype))
            for variable, array in zip(self._model.metrics_variables, arrays, strict=True)
        ]

    def results(self) -> dict[str, Any]:
        for variable, array in zip(self._model.metrics_variables, self.metrics_arrays, strict=True):
            variable.assign(array)
        return self._model.get_metrics_result()


def pack_batch(model: Any, inputs: list[Any], targets: list[Any], weights: list[Any]) -> tuple[Any, ...]:
    return (forms.pack(model, inputs), forms.one_or_all(targets), *forms.if_any(weights))


def pick_rows(feed: Feed, rows: np.ndarray) -> tuple[list[Any], list[Any], list[Any]]:
    picked = [[array[rows] for array in arrays] for arrays in (feed.inputs, feed.targets, feed.weights)]
    return picked[0], picked[1], picked[2]
