"""The forward pass on PyTorch, which runs it as it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from . import forms, runtime
from .architecture import Shape

FIXED_ROWS = False


def tensor(array: np.ndarray) -> Any:
    return runtime.keras().ops.convert_to_tensor(np.array(array))


def bound(call: Callable[..., list[Any]], variables: list[Any]) -> Callable[[list[np.ndarray]], list[Any]]:
    """Give a function of the inputs alone."""
    return functools.partial(call, variables)


def compiled(model: Any, inputs: tuple[Shape, ...]) -> Callable[[list[Any], list[np.ndarray]], list[Any]]:
    """Give a function of the model's variables and its inputs."""
    split = len(model.trainable_variables)

    def call(variables: list[Any], batch: list[np.ndarray]) -> list[Any]:
        tensors = [tensor(array) for array in batch]
        with torch.no_grad():
            found, _ = model.stateless_call(
                variables[:split], variables[split:], forms.pack(model, tensors), training=False
            )
        return [runtime.to_numpy(output) for output in runtime.keras().tree.flatten(found)]

    return call
