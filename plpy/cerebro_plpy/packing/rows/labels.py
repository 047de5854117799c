"""Encodes class labels: as codes while rows are read, and as places among the sorted classes afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.packing.rows.hashing import class_tokens

MOST_CLASSES = 32767
Label = str | None


class _Codes(dict[Label, int]):
    def __init__(self, column: str) -> None:
        super().__init__()
        self._column = column

    def __missing__(self, label: Label) -> int:
        if len(self) == MOST_CLASSES:
            raise CerebroError(
                f'column "{self._column}" has more than {MOST_CLASSES} distinct values, too many for classes',
                hint='If it is a quantity, pack it as one: options {"task": "regression"}.',
            )
        self[label] = len(self)
        return self[label]


class Classes:
    """The distinct labels of one dependent column, with a code for each in the order of appearance."""

    def __init__(self, column: str, seed: int) -> None:
        self._codes = _Codes(column)
        self._seed = seed
        self._tokens = np.zeros((2, 0), np.uint64)

    @property
    def labels(self) -> list[Label]:
        """The distinct labels, in order of their codes."""
        return list(self._codes)

    def codes(self, labels: Sequence[Label]) -> np.ndarray:
        """Return the code of each label; a label that is new gets the next code."""
        return np.fromiter(map(self._codes.__getitem__, labels), np.int32, len(labels))

    def tokens(self, codes: np.ndarray) -> np.ndarray:
        """Return the numbers that each row's label adds to the row's two hash sums, of shape (2, rows)."""
        known = self._tokens.shape[1]
        if known < len(self._codes):
            fresh = [class_tokens(self._seed, label) for label in self.labels[known:]]
            self._tokens = np.hstack([self._tokens, np.array(fresh, np.uint64).T])
        return self._tokens[:, codes]


def one_hot(positions: np.ndarray, width: int) -> np.ndarray:
    """Return a row for each class position, with 1 at this position and 0 elsewhere."""
    encoded = np.zeros((len(positions), width), "<i2")
    encoded[np.arange(len(positions)), positions] = 1
    return encoded
