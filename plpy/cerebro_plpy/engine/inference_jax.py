"""The forward pass on JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import forms, runtime
from .architecture import Shape

# JAX compiles a program for each number of rows.
FIXED_ROWS = True


def tensor(array: np.ndarray) -> Any:
    return jnp.array(array, copy=True)


def bound(call: Callable[..., list[Any]], variables: list[Any]) -> Callable[[list[np.ndarray]], list[Any]]:
    """Give a function of the inputs alone."""
    return functools.partial(call, variables)


def compiled(model: Any, inputs: tuple[Shape, ...]) -> Callable[[list[Any], list[np.ndarray]], list[Any]]:
    """Give a function of the model's variables and its inputs."""
    split = len(model.trainable_variables)

    def run(variables: list[Any], batch: list[Any]) -> Any:
        found, _ = model.stateless_call(
            variables[:split], variables[split:], forms.pack(model, batch), training=False
        )
        return runtime.keras().tree.flatten(found)

    return jax.jit(run)
