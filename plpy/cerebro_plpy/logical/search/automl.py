"""The searches of automl calls as they are written down with their runs, and what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...madlib.grid import GridRow, examples, open_space
from .method import Draws, Params, SearchMethod
from .methods import METHODS
from .template import Procedure


@dataclass(frozen=True)
class SearchCall:
    """What a procedure is made of. The same search makes the same procedure."""

    method: SearchMethod
    model_ids: Sequence[int]
    compile_grid: str
    fit_grid: str
    random_state: int
    segments: int

    @staticmethod
    def of(name: str, params: Params, **others: Any) -> SearchCall:
        """Read what `arguments` gave, after it was written down."""
        return SearchCall(METHODS[name](params), **others)

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything but the method's name, as plain JSON."""
        others = {name: value for name, value in vars(self).items() if name != "method"}
        return {**others, "params": self.method.params, "model_ids": list(self.model_ids)}

    def examples(self) -> list[GridRow]:
        """Configs that stand for all for a check against architectures and data."""
        return examples(open_space(self.model_ids, self.compile_grid, self.fit_grid))

    def limited(self, most: int | None) -> SearchCall:
        """The same search with at most so many configs."""
        return self if most is None else replace(self, method=self.method.limited(most))

    def procedure(self) -> Procedure:
        """Make the procedure; everything is checked that can be."""
        return self.maker()()

    def maker(self) -> Callable[[], Procedure]:
        """What makes it, as often as it is needed."""
        space = open_space(self.model_ids, self.compile_grid, self.fit_grid)
        return partial(self.method.procedure, Draws(space, self.random_state, self.segments))
