"""The memory that a mini-batch needs at the least.

The least is what no engine can do without: weights that train, their gradients, and outputs of layers. What a
visit needs on top of it depends on the engine, so only a config that is far too large is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NUMBER = 4
# Of the numbers that layers are counted to keep: engines leave some out, and half precision takes half.
_SURE_SHARE = 0.5


@dataclass(frozen=True)
class BatchNeeds:
    """The least memory of a mini-batch: what grows with its rows, and what does not."""

    fixed_bytes: int
    row_bytes: int
    rows: int

    @property
    def bytes(self) -> int:
        return self.bytes_of(self.rows)

    def bytes_of(self, rows: int) -> int:
        return self.fixed_bytes + rows * self.row_bytes

    def parts(self, memory: int) -> int | None:
        """Return into how many batches this one is to be cut to take half of the memory, or None."""
        for parts in (2**n for n in range(1, 21)):
            rows = self.rows // parts
            if rows and self.bytes_of(rows) <= memory / 2:
                return parts
        return None


def needs_of(facts: Mapping[str, Any], rows: int) -> BatchNeeds:
    """Return what a net, by its description, needs for a mini-batch of so many rows."""
    return BatchNeeds(
        fixed_bytes=2 * _NUMBER * int(facts["trained"]),
        row_bytes=int(_SURE_SHARE * _NUMBER * facts["work"]["kept"]),
        rows=rows,
    )
