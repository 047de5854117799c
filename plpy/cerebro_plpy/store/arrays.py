"""Arrays of one dimension on their way from the server and to it."""

from __future__ import annotations

import numpy as np

# Behind its length, an array of one dimension without NULL begins with so many bytes about itself.
_HEAD = 20


def read_array(data: bytes, kind: str) -> np.ndarray:
    """View what `cerebro._array_bytes` gives as numbers of NumPy's type `kind`."""
    return np.frombuffer(data, kind, offset=_HEAD)


def write_numbers(values: np.ndarray) -> list[str]:
    """Return numbers as text, with all the digits that single precision has."""
    return [f"{value:.9g}" for value in values.tolist()]


def write_arrays(rows: np.ndarray) -> list[str]:
    """Return each row of numbers as the text of an array."""
    return ["{" + ",".join([f"{value:.9g}" for value in row]) + "}" for row in rows.tolist()]
