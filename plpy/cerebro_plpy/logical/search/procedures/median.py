"""Median stopping: stops a config whose best value is worse than the median of other configs' averages."""

from __future__ import annotations

from statistics import fmean, median
from typing import ClassVar

from cerebro_plpy.logical.search.method import Draws, Params, SearchMethod
from cerebro_plpy.logical.search.procedures.trials import Trials
from cerebro_plpy.logical.search.template import Procedure


class MedianRule:
    """A rule that compares a config with all other configs that have reached the same epoch.

    It stops no config before `least_epochs`, or while fewer than `least_configs` others have reached the
    epoch.
    """

    def __init__(self, least_epochs: int, least_configs: int) -> None:
        self._least_epochs = least_epochs
        self._least_configs = least_configs
        self._values: dict[int, dict[int, float]] = {}

    def judge(self, mst_key: int, epoch: int, value: float) -> tuple[bool, str]:
        mine = self._values.setdefault(mst_key, {})
        mine[epoch] = value
        averages = [
            fmean(v for e, v in values.items() if e <= epoch)
            for key, values in self._values.items()
            if key != mst_key and epoch in values
        ]
        if epoch < self._least_epochs or len(averages) < self._least_configs:
            return False, f"epoch {epoch}: too early to be judged"
        worse = min(mine.values()) > median(averages)
        return worse, (
            f"epoch {epoch}: {'worse' if worse else 'no worse'} than the median of {len(averages)} configs"
        )


class MedianMethod(SearchMethod):
    name: ClassVar[str] = "median"
    defaults: ClassVar[Params] = {
        "num_configs": 20, "num_iterations": 9, "min_iterations": 2, "min_configs": 4,
    }  # fmt: skip
    guided: ClassVar[bool] = False

    @property
    def proposes(self) -> bool:
        return self.guided

    def procedure(self, draws: Draws) -> Procedure:
        count = self.number("num_configs")
        rule = MedianRule(self.number("min_iterations"), self.number("min_configs"))
        return Trials(draws.sampler(count, self.guided), count, self.epochs, draws.segments, rule)


class TpeMethod(MedianMethod):
    """Median stopping with configs that TPE proposes."""

    name: ClassVar[str] = "tpe"
    guided: ClassVar[bool] = True
