"""Computes the least memory that a mini-batch needs.

No engine can do without it: weights that train, their gradients, and outputs of layers. A visit needs
more, and how much more depends on the engine; so only a config that is far too large is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NUMBER = 4
# The share of counted layer outputs that is certainly kept: engines leave some out, and half precision
# takes half.
_SURE_SHARE = 0.5


@dataclass(frozen=True)
class BatchNeeds:
    """The least memory of a mini-batch of `rows` rows: `fixed_bytes`, and `row_bytes` for each row.

    With layers computed again in the backward pass, it is `again_bytes` for each row.
    """

    fixed_bytes: int
    row_bytes: int
    again_bytes: int
    rows: int

    @property
    def bytes(self) -> int:
        return self.bytes_of(self.rows)

    def bytes_of(self, rows: int) -> int:
        return self.fixed_bytes + rows * self.row_bytes

    def fits_again(self, memory: int) -> bool:
        """Return whether half of `memory` is enough if layers are computed again, as they are not yet."""
        again = self.fixed_bytes + self.rows * self.again_bytes
        return self.again_bytes < self.row_bytes and again <= memory / 2

    def parts(self, memory: int) -> int | None:
        """Return into how many parts to cut the mini-batch, so that each needs at most half of `memory`.

        Return None if no cut makes the parts small enough.
        """
        for parts in (2**n for n in range(1, 21)):
            rows = self.rows // parts
            if rows and self.bytes_of(rows) <= memory / 2:
                return parts
        return None


def needs_of(facts: Mapping[str, Any], rows: int) -> BatchNeeds:
    """Return the least memory for a mini-batch of a net; `facts` is the net's description by the engine."""
    return BatchNeeds(
        fixed_bytes=2 * _NUMBER * int(facts["trained"]),
        row_bytes=int(_SURE_SHARE * _NUMBER * facts["work"]["kept"]),
        again_bytes=int(_SURE_SHARE * _NUMBER * facts["kept_again"]),
        rows=rows,
    )
