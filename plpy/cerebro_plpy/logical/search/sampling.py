"""Where the configs of a search come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ...madlib.grid import GridRow


class Sampler(Protocol):
    """Proposes configs one at a time, and may learn from what became of them."""

    def ask(self, mst_key: int) -> GridRow: ...

    def tell(self, mst_key: int, values: Mapping[int, float], complete: bool) -> None:
        """Values by epoch; none at all of a config that failed at once."""


class Listed:
    """Configs that are known from the start."""

    def __init__(self, configs: Sequence[GridRow]) -> None:
        self._configs = list(configs)

    def ask(self, mst_key: int) -> GridRow:
        return self._configs[mst_key - 1]

    def tell(self, mst_key: int, values: Mapping[int, float], complete: bool) -> None:
        """There is nothing to learn."""
