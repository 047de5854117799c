"""Samplers: sources from which a search gets its configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cerebro_plpy.madlib.spaces.grid import GridRow


class Sampler(Protocol):
    """A source that proposes configs one at a time, and may learn from their results."""

    def ask(self, mst_key: int) -> GridRow: ...

    def tell(self, mst_key: int, values: Mapping[int, float], complete: bool) -> None:
        """Learn from the values of a config by epoch. There are none if the config failed at once.

        `complete` says whether the config was trained to the end.
        """


class Listed:
    """A sampler of configs that are known from the start."""

    def __init__(self, configs: Sequence[GridRow]) -> None:
        self._configs = list(configs)

    def ask(self, mst_key: int) -> GridRow:
        return self._configs[mst_key - 1]

    def tell(self, mst_key: int, values: Mapping[int, float], complete: bool) -> None:
        """Do nothing: the configs are known from the start."""
