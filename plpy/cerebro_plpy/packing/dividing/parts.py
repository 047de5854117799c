"""Rows in parts, the folds or groups that they are in: they are packed part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cerebro_plpy.errors import DUPLICATE_COLUMN, CerebroError
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import SourceColumn


class PartsRead:
    """A counter of the rows read of each part. They are sorted by part, and within a part by hash."""

    def __init__(self, count: int) -> None:
        self.rows = np.zeros(count, np.int64)
        # The part stands in the first bits of what rows are sorted by.
        self._bits = max(1, (count - 1).bit_length())

    def sort_by(self, values: Sequence[str], hashes: np.ndarray) -> None:
        """Put the parts of rows, numbered from 1, before their hashes."""
        parts = np.array(values).astype(np.int64) - 1
        self.rows += np.bincount(parts, minlength=len(self.rows))
        hashes >>= np.uint64(self._bits)
        hashes |= parts.astype(np.uint64) << np.uint64(64 - self._bits)


def check_name(part: packed.Expression, known: Mapping[str, SourceColumn], table: str) -> None:
    """Refuse rows with a column that has the name of the one that says their part."""
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
