"""Hashes a row's content with the seed. The hash decides the row's place, however the table is stored."""

from __future__ import annotations

import numpy as np

from cerebro_plpy.seeding import derive

_SHIFTS_AND_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def _keys(seed: int, column: int, width: int) -> np.ndarray:
    raw = np.random.Philox(key=derive(seed, "row hash", column)).random_raw(2 * width)
    return (raw | np.uint64(1)).reshape(2, width)


def class_tokens(seed: int, label: str | None) -> tuple[int, int]:
    """Return the two numbers that a class label's text adds to the two hash sums of its row."""
    number = derive(seed, "no label") if label is None else derive(seed, "label", label)
    return number & (2**64 - 1), number >> 64


class RowHash:
    """A hash of rows: two multilinear sums over the 32-bit words of a row, mixed into one 64-bit number.

    One sum would not be enough: if two words differ only in their sign bit, the difference of the sums has
    only 33 random bits.
    """

    def __init__(self, seed: int, widths: list[int]) -> None:
        self._keys = [_keys(seed, column, width) for column, width in enumerate(widths)]

    def sums(self, rows: int) -> np.ndarray:
        """Return the two hash sums of each row in a batch before any column is added: zeros."""
        return np.zeros((2, rows), np.uint64)

    def add(self, sums: np.ndarray, column: int, values: np.ndarray) -> None:
        """Add one column's values, float32 or int16 of shape (rows, width), to the hash sums of a batch."""
        if values.dtype == np.float32:
            words = values.view("<u4").astype(np.uint64)
        else:
            words = values.astype(np.uint16).astype(np.uint64)
        for sum_, keys in zip(sums, self._keys[column], strict=True):
            sum_ += np.einsum("ij,j->i", words, keys)

    @staticmethod
    def finish(sums: np.ndarray) -> np.ndarray:
        """Return the hash of each row in a batch, made from its two sums."""
        return _mix(sums[0] + _mix(sums[1]))


def _mix(numbers: np.ndarray) -> np.ndarray:
    """Return the numbers with their bits mixed by the last step of splitmix64."""
    for shift, factor in _SHIFTS_AND_FACTORS:
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))
