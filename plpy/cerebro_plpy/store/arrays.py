"""One-dimensional arrays: read from the server's bytes into NumPy, and written as text for the server."""

from __future__ import annotations

import numpy as np

# The size of the header of an array of one dimension without NULL, after its length.
_HEAD = 20


def read_array(data: bytes, kind: str) -> np.ndarray:
    """Return the numbers in the bytes of an array that `cerebro._array_bytes` returned; `kind` is NumPy's
    type."""
    return np.frombuffer(data, kind, offset=_HEAD)


def write_numbers(values: np.ndarray) -> list[str]:
    """Return each number as text with nine digits, which tell any two single-precision numbers apart."""
    return [f"{value:.9g}" for value in values.tolist()]


# Three digits at a time; the exponents that single precision has behind nine digits, each with its comma.
_DIGITS = np.frombuffer("".join(f"{number:03d}" for number in range(1000)).encode(), np.uint8).reshape(-1, 3)
_LEAST, _MOST = -45, 39
_ENDS = np.frombuffer("".join(f"e{p - 8:+03d}," for p in range(_LEAST, _MOST + 1)).encode(), np.uint8)
_SCALES = 10.0 ** (8 - np.arange(_LEAST, _MOST + 1))


def write_arrays(rows: np.ndarray) -> list[str]:
    """Return each row of numbers as the text of an SQL array, with nine digits for each number.

    NumPy finds the digits of all numbers at once: number by number, Python would take longer to write them
    than the server takes to read them.
    """
    size = np.abs(rows).astype(np.float64)
    if not (size < 10.0**_MOST).all():
        return ["{" + ",".join([f"{value:.9g}" for value in row]) + "}" for row in rows.tolist()]
    power = np.floor(np.log10(np.maximum(size, 10.0**_LEAST))).astype(np.intp) - _LEAST
    digits = np.rint(size * _SCALES[power]).astype(np.int32)
    rounded_up = digits == 10**9
    digits[rounded_up], power[rounded_up] = 10**8, power[rounded_up] + 1
    first, rest = np.divmod(digits, 10**6)
    text = np.empty((*rows.shape, 15), np.uint8)
    text[..., 0] = np.where(np.signbit(rows), ord("-"), ord("+"))
    for place, three in enumerate((first, *np.divmod(rest, 1000))):
        text[..., 1 + 3 * place : 4 + 3 * place] = _DIGITS[three]
    text[..., 10:] = _ENDS.reshape(-1, 5)[power]
    return ["{" + row[:-1].tobytes().decode() + "}" for row in text.reshape(len(rows), -1)]
