"""Runs Keras without computing any number: tensors have only shapes, however large they would be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from cerebro_plpy.engine.backends import runtime

T = TypeVar("T")


def without_computing(work: Callable[[], T]) -> T:
    """Call `work` so that all its tensors are symbols of the engine, and return its result.

    The tensors cannot be used afterwards.
    """
    return _WAYS[runtime.backend()](work)


def _on_tensorflow(work: Callable[[], T]) -> T:
    with sys.modules["tensorflow"].Graph().as_default():
        return work()


def _on_jax(work: Callable[[], T]) -> T:
    found: list[T] = []

    def traced() -> tuple[()]:
        found.append(work())
        return ()

    sys.modules["jax"].eval_shape(traced)
    return found[0]


def _on_torch(work: Callable[[], T]) -> T:
    with runtime.keras().src.backend.torch.core.device_scope("meta"):
        return work()


_WAYS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "tensorflow": _on_tensorflow,
    "jax": _on_jax,
    "torch": _on_torch,
}
