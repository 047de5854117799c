"""Rows in parts, that is, in folds or in groups. They are packed part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cerebro_plpy.errors import DUPLICATE_COLUMN, CerebroError
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import SourceColumn


class PartsRead:
    """A counter of the rows in each part (fold or group), which also sorts rows by part."""

    def __init__(self, count: int) -> None:
        self.rows = np.zeros(count, np.int64)
        # The number of bits that the part takes of the number by which rows are sorted.
        self._bits = max(1, (count - 1).bit_length())

    def sort_by(self, values: Sequence[str], hashes: np.ndarray) -> None:
        """Put the part of each row in front of the bits of its hash, and count the rows of each part.

        `values` has the part of each row, numbered from 1.
        """
        parts = np.array(values).astype(np.int64) - 1
        self.rows += np.bincount(parts, minlength=len(self.rows))
        hashes >>= np.uint64(self._bits)
        hashes |= parts.astype(np.uint64) << np.uint64(64 - self._bits)


def check_name(part: packed.Expression, known: Mapping[str, SourceColumn], table: str) -> None:
    """Raise an error if a table has a column with the name that packing gives to the part of a row."""
    name = part.columns[0].name
    if name in known:
        raise CerebroError(
            f'{table} has a column "{name}", the name that packing gives to the part of a row',
            hint="Rename the column with a view.",
            sqlstate=DUPLICATE_COLUMN,
        )


def _number(name: str) -> packed.Expression:
    return packed.Expression("text", (SourceColumn(name, "int4", False, "integer", "integer", True),))


FOLD, GROUP = _number(packed.FOLD), _number(packed.GROUP)
