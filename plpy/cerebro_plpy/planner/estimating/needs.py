"""The memory that a mini-batch needs at the least, and what makes it less.

The least is what no engine can do without: weights, their gradients, and the outputs of layers. What a visit
needs on top of it depends on the engine, so only a config that is far too large is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NUMBER = 4
# Blocks that are computed again may be chosen better than they are counted.
_SURE_SHARE = 0.5


@dataclass(frozen=True)
class BatchNeeds:
    """The least memory of a mini-batch: what grows with its rows, and what does not."""

    fixed_bytes: int
    row_bytes: int
    # With the option `recompute`.
    row_bytes_again: int
    rows: int

    @property
    def bytes(self) -> int:
        return self.bytes_of(self.rows)

    def bytes_of(self, rows: int) -> int:
        return self.fixed_bytes + rows * self.row_bytes

    @property
    def bytes_again(self) -> int:
        return self.fixed_bytes + self.rows * self.row_bytes_again

    def parts(self, memory: int) -> int | None:
        """Return into how many batches this one is to be cut to take half of the memory, or None."""
        for parts in (2**n for n in range(1, 21)):
            rows = self.rows // parts
            if rows and self.bytes_of(rows) <= memory / 2:
                return parts
        return None


def needs_of(facts: Mapping[str, Any], rows: int, *, again: bool) -> BatchNeeds:
    """Return what a net, by its description, needs for a mini-batch of so many rows."""
    made = _SURE_SHARE * facts["work"]["kept"] if again else facts["made"]
    return BatchNeeds(
        fixed_bytes=2 * _NUMBER * int(facts["parameters"]),
        row_bytes=int(_NUMBER * made),
        row_bytes_again=int(_NUMBER * facts["kept_again"]),
        rows=rows,
    )
