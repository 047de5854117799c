"""Buffers of a packed table as arrays, for the sessions that train on them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..errors import DATA_CORRUPTED, CerebroError

FEATURES = np.dtype("<f4")
ONE_HOT = np.dtype("<i2")


def decode_buffer(data: bytes, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """View a buffer's bytes as the array they are; nothing is copied, so the array is read-only."""
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise CerebroError(
            f"a buffer of {len(data)} bytes cannot have the shape {list(shape)} of {dtype.name}",
            hint="Pack the table again.",
            sqlstate=DATA_CORRUPTED,
        )
    return np.frombuffer(data, dtype).reshape(shape)
