"""Parts of a forecast: how much each value of a window and each column adds to a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cerebro_plpy.forecasting.inputs import AHEAD, CALENDAR, STATIC, WINDOW, InputMaker
from cerebro_plpy.forecasting.series import Series
from cerebro_plpy.forecasting.windows import Windowed


class StepPart(NamedTuple):
    """A value of the window or a column: its name, its value as text, and what it adds to the forecast.

    The amount is in the scale of the window.
    """

    column: str
    shown: str | None
    added: float


@dataclass(frozen=True)
class StepParts:
    """The columns of a forecast; `name` labels each part of a step with one of them.

    `time` and `value` are names of columns, and `inputs` has all other columns.
    """

    time: str
    value: str
    inputs: InputMaker

    def name(
        self, series: Series, window: Windowed, added: Mapping[str, np.ndarray], step: int, shown: str
    ) -> Iterator[StepPart]:
        """Yield what each value of a single window and each column adds to a step of the forecast.

        `added` has what each number of an input adds, and `shown` is the time of the step as text.
        """
        length = window.known.shape[1]
        for place, (value, own) in enumerate(zip(window.known[0], added[WINDOW], strict=True)):
            yield StepPart(f"{self.value}[-{length - place}]", _show(value), float(own))
        for place, one in enumerate(self.inputs.ahead):
            own = added[AHEAD].reshape(-1, len(self.inputs.ahead))[:, place]
            yield StepPart(one.column, _show(window.ahead[0, step, place]), float(own.sum()))
        yield from self._name_static(series, added)
        if CALENDAR in added:
            yield StepPart(self.time, shown, float(added[CALENDAR].sum()))

    def _name_static(self, series: Series, added: Mapping[str, np.ndarray]) -> Iterator[StepPart]:
        first = 0
        for one, value in zip(self.inputs.static, self.inputs.static_values(series), strict=True):
            after = first + max(1, len(one.words))
            shown = value if value is None or isinstance(value, str) else _show(value)
            yield StepPart(one.column, shown, float(added[STATIC][first:after].sum()))
            first = after


def _show(value: float) -> str | None:
    return f"{value:.10g}" if np.isfinite(value) else None
