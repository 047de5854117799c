"""Decodes buffers of a packed table into arrays, for the sessions that train on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATA_CORRUPTED, NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.store.packed import partitions

FEATURES = np.dtype("<f4")
ONE_HOT = np.dtype("<i2")


def decode_buffer(data: bytes, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return a buffer's bytes as an array of this shape and type, a read-only view that copies nothing."""
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise CerebroError(
            f"a buffer of {len(data)} bytes cannot have the shape {list(shape)} of {dtype.name}",
            hint="Pack the table again.",
            sqlstate=DATA_CORRUPTED,
        )
    return np.frombuffer(data, dtype).reshape(shape)


def scan(
    db: Database,
    table: str,
    column: str,
    dtype: np.dtype,
    enough: float = math.inf,
    *,
    below: int | None = None,
) -> Iterator[np.ndarray]:
    """Yield the buffers of a column as arrays; stop when the arrays have `enough` rows in all.

    If `below` is given, only buffers with lower numbers are read.
    """
    rows = 0
    for data, shape in partitions.scan_column(db, table, column, below):
        if data is None or shape is None:
            raise CerebroError(
                f'{table} has a buffer without "{column}"',
                hint="Pack the table again.",
                sqlstate=DATA_CORRUPTED,
            )
        values = decode_buffer(data, shape, dtype)
        yield values
        rows += len(values)
        if rows >= enough:
            return


def array_to_bytes(values: Sequence[float | None], dtype: str) -> bytes:
    """Return the elements of an array as the bytes of a buffer."""
    if None in values:
        raise CerebroError("the array has NULL elements", sqlstate=NULL_NOT_ALLOWED)
    return np.array(values, dtype).tobytes()


def bytes_to_array(data: bytes, dtype: str) -> list[float]:
    """Return the values in the bytes of a buffer as a flat list."""
    width = np.dtype(dtype).itemsize
    if len(data) % width:
        raise CerebroError(f"{len(data)} bytes are not a whole number of {width}-byte values")
    return np.frombuffer(data, dtype).tolist()
