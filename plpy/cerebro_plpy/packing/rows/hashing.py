"""A row's place in the shuffle: a hash of its content and the seed, wherever and in what order rows lie."""

from __future__ import annotations

import numpy as np

from cerebro_plpy.seeding import derive

_SHIFTS_AND_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def _keys(seed: int, column: int, width: int) -> np.ndarray:
    raw = np.random.Philox(key=derive(seed, "row hash", column)).random_raw(2 * width)
    return (raw | np.uint64(1)).reshape(2, width)


def class_tokens(seed: int, label: str | None) -> tuple[int, int]:
    """Return what a class label adds to a row's two sums: its text is hashed, since codes come later."""
    number = derive(seed, "no label") if label is None else derive(seed, "label", label)
    return number & (2**64 - 1), number >> 64


class RowHash:
    """A hash of rows: two multilinear sums over the 32-bit words of a row, mixed into one number of 64 bits.

    One sum alone would not do: words that differ in their sign bit only leave it 33 random bits.
    """

    def __init__(self, seed: int, widths: list[int]) -> None:
        self._keys = [_keys(seed, column, width) for column, width in enumerate(widths)]

    def sums(self, rows: int) -> np.ndarray:
        """Start the sums of a batch."""
        return np.zeros((2, rows), np.uint64)

    def add(self, sums: np.ndarray, column: int, values: np.ndarray) -> None:
        """Add one column's float32 or int16 values, (rows, width)."""
        if values.dtype == np.float32:
            words = values.view("<u4").astype(np.uint64)
        else:
            words = values.astype(np.uint16).astype(np.uint64)
        for sum_, keys in zip(sums, self._keys[column], strict=True):
            sum_ += np.einsum("ij,j->i", words, keys)

    @staticmethod
    def finish(sums: np.ndarray) -> np.ndarray:
        """Return the batch's hashes."""
        return _mix(sums[0] + _mix(sums[1]))


def _mix(numbers: np.ndarray) -> np.ndarray:
    """Mix the bits of numbers by the finaliser of splitmix64."""
    for shift, factor in _SHIFTS_AND_FACTORS:
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))
