"""hyperopt: MADlib's name for a search of single configs, drawn at random or proposed by TPE."""

from __future__ import annotations

from typing import ClassVar

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.search.method import WHO, Draws, Params, SearchMethod
from cerebro_plpy.logical.search.procedures.trials import Trials
from cerebro_plpy.logical.search.template import Procedure


class HyperoptMethod(SearchMethod):
    name: ClassVar[str] = "hyperopt"
    defaults: ClassVar[Params] = {"num_configs": 20, "num_iterations": 5, "algorithm": "tpe"}
    invalid: ClassVar[str | None] = (
        "Invalid param(s) passed in for hyperopt. Only num_configs, num_iterations, and algorithm"
        " may be specified"
    )

    def check(self) -> None:
        if self.number("num_configs") <= 0 or self.number("num_iterations") <= 0:
            raise CerebroError(
                f"{WHO}: num_configs and num_iterations in 'automl_params' must be > 0",
                detail=f"They are {self.params['num_configs']} and {self.params['num_iterations']}.",
            )

    @property
    def proposes(self) -> bool:
        return self.params["algorithm"] == "tpe"

    def procedure(self, draws: Draws) -> Procedure:
        count, guided = self.number("num_configs"), self.params["algorithm"] == "tpe"
        return Trials(draws.sampler(count, guided), count, self.epochs, draws.segments, in_order=guided)
