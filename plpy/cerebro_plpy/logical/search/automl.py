"""The searches of automl calls, as they are written down with their runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cerebro_plpy.logical.search.method import Draws, Params, SearchMethod
from cerebro_plpy.logical.search.methods import METHODS
from cerebro_plpy.logical.search.template import Procedure
from cerebro_plpy.madlib.spaces.grid import GridRow, examples, open_space


@dataclass(frozen=True)
class SearchCall:
    """A search as it is written down: the same search always makes the same procedure."""

    method: SearchMethod
    model_ids: Sequence[int]
    compile_grid: str
    fit_grid: str
    random_state: int
    segments: int

    @staticmethod
    def from_arguments(name: str, params: Params, **others: Any) -> SearchCall:
        """Read what `arguments` gave, after it was written down."""
        return SearchCall(METHODS[name](params), **others)

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything but the method's name, as plain JSON."""
        others = {name: value for name, value in vars(self).items() if name != "method"}
        return {**others, "params": self.method.params, "model_ids": list(self.model_ids)}

    def examples(self) -> list[GridRow]:
        """Return configs that stand for all in a check against architectures and data."""
        return examples(open_space(self.model_ids, self.compile_grid, self.fit_grid))

    def limited(self, most: int | None) -> SearchCall:
        """Return the search with at most `most` configs."""
        return self if most is None else replace(self, method=self.method.limited(most))

    def procedure(self) -> Procedure:
        """Make the procedure, checking everything that can be checked."""
        return self.maker()()

    def maker(self) -> Callable[[], Procedure]:
        """Return a function that makes the procedure, as often as it is needed."""
        space = open_space(self.model_ids, self.compile_grid, self.fit_grid)
        return partial(self.method.procedure, Draws(space, self.random_state, self.segments))
