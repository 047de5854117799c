"""The searches of automl calls as they are written down with their runs, and what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import CerebroError
from ...madlib.automl import WHO, Method, Params
from ...madlib.grid import MOST_CONFIGS, GridRow, examples, open_space, random_choices, to_row
from ...madlib.space import Choice, Space
from . import hyperband
from .asha import Asha, rung_epochs
from .median import MedianRule
from .pbt import Pbt
from .sampling import Listed, Sampler
from .template import Procedure
from .trials import Trials


@dataclass(frozen=True)
class SearchCall:
    """What a procedure is made of. The same search makes the same procedure."""

    method: Method
    model_ids: Sequence[int]
    compile_grid: str
    fit_grid: str
    random_state: int
    segments: int

    @staticmethod
    def of(name: str, params: Params, **others: Any) -> SearchCall:
        """Read what `arguments` gave, after it was written down."""
        return SearchCall(Method(name, params), **others)

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything but the method's name, as plain JSON."""
        others = {name: value for name, value in vars(self).items() if name != "method"}
        return {**others, "params": self.method.params, "model_ids": list(self.model_ids)}

    def examples(self) -> list[GridRow]:
        """Configs that stand for all for a check against architectures and data."""
        return examples(open_space(self.model_ids, self.compile_grid, self.fit_grid))

    def rung_of(self, mst_key: int, epochs: int) -> hyperband.Rung | None:
        """The last rung that a config reached; None where the method has no brackets."""
        if self.method.name != "hyperband":
            return None
        return hyperband.rung_of(self._schedule(), mst_key, epochs)

    @property
    def epochs(self) -> int:
        """The most epochs that a config may get."""
        return self.method.number("R" if self.method.name == "hyperband" else "num_iterations")

    def limited(self, most: int | None) -> SearchCall:
        """The same search with at most so many configs; where all that it begins must be there, refuse."""
        if most is None:
            return self
        method = self.method
        if "num_configs" in method.params:
            number = min(most, method.number("num_configs"))
            return replace(self, method=replace(method, params={**method.params, "num_configs": number}))
        configs = self._configs()
        if configs > most:
            raise CerebroError(f"{WHO}: the search has {configs} configs, and max_configs is {most}")
        return self

    def _configs(self) -> int:
        if self.method.name == "hyperband":
            return hyperband.size(self._schedule())
        epochs, interval, replaced, population = (
            self.method.number(key) for key in ("num_iterations", "interval", "replaced", "population")
        )
        return population + replaced * ((epochs - 1) // interval)

    def procedure(self) -> Procedure:
        """Make the procedure; everything is checked that can be."""
        space = open_space(self.model_ids, self.compile_grid, self.fit_grid)
        method = self.method
        if method.name == "hyperband":
            return self._hyperband(space)
        if method.name == "pbt":
            population = self._choices(space, method.number("population"))
            numbers = (method.number(key) for key in ("num_iterations", "interval", "replaced"))
            return Pbt(space, population, *numbers, random_state=self.random_state)
        count = method.number("num_configs")
        if method.name == "asha":
            epochs = rung_epochs(method.number("min_iterations"), self.epochs, method.number("eta"))
            # Twice as many as there are segments: none is idle while two configs want the same one.
            return Asha(self._rows(space, count), epochs, method.number("eta"), 2 * self.segments)
        if method.name == "hyperopt":
            guided = method.params["algorithm"] == "tpe"
            sampler = self._sampler(space, count, guided)
            return Trials(sampler, count, self.epochs, self.segments, in_order=guided)
        rule = MedianRule(method.number("min_iterations"), method.number("min_configs"))
        guided = method.name == "tpe"
        return Trials(self._sampler(space, count, guided), count, self.epochs, self.segments, rule)

    def _schedule(self) -> list[hyperband.Rung]:
        return hyperband.schedule(WHO, *(self.method.number(key) for key in ("R", "eta", "skip_last")))

    def _hyperband(self, space: Space) -> Procedure:
        rungs = self._schedule()
        return hyperband.Hyperband(rungs, self._rows(space, hyperband.size(rungs)))

    def _sampler(self, space: Space, count: int, guided: bool) -> Sampler:
        if not guided:
            return Listed(self._rows(space, count))
        from .tpe import Tpe

        return Tpe(space, self.random_state, count)

    def _rows(self, space: Space, count: int) -> list[GridRow]:
        return [to_row(choice) for choice in self._choices(space, count)]

    def _choices(self, space: Space, count: int) -> list[Choice]:
        if count > MOST_CONFIGS:
            raise CerebroError(
                f"{WHO}: the search has {count} configs", detail=f"At most {MOST_CONFIGS} are possible."
            )
        return random_choices(space, count, self.random_state)
