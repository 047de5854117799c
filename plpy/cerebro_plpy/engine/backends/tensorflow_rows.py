"""Turns the rows of a dataset into tensors of TensorFlow."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from cerebro_plpy.engine.backends.interfaces import Feed
from cerebro_plpy.engine.models.data import is_shareable


def tensors_of(feed: Feed) -> tuple[Any, ...]:
    """Return the rows, their targets, and their weights as tensors."""
    inputs = feed.dataset.derived("tensorflow", lambda: list(map(_tensor, feed.inputs)))
    return inputs, *feed.dataset.derived(("tensorflow", feed.key), partial(_labels, feed))


def _tensor(array: np.ndarray) -> Any:
    """Return an array as a tensor, without a copy if TensorFlow computes in this process's memory."""
    if is_shareable(array) and not tf.config.get_visible_devices("GPU"):
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.constant(array)


def _labels(feed: Feed) -> tuple[list[Any], list[Any]]:
    return [tf.constant(a) for a in feed.targets], [tf.constant(a) for a in feed.weights]


def specs_of(feed: Feed) -> Any:
    """Return the specs of the tensors that `tensors_of` returns, for any number of rows."""

    def spec(array: np.ndarray) -> Any:
        return tf.TensorSpec([None, *array.shape[1:]], array.dtype)

    return [spec(a) for a in feed.inputs], [spec(a) for a in feed.targets], [spec(a) for a in feed.weights]
