"""Verdicts on measurements: ok, warn from half of a threshold on, or alarm from the threshold on.

The difference that chance alone may make is subtracted first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.options import is_number, read_object
from cerebro_plpy.madlib.nearest import unknown

OK, WARN, ALARM = ORDER = ("ok", "warn", "alarm")
STABILITY, NULLS, UNSEEN, OUTSIDE, PREDICTIONS, METRIC = (
    "stability", "nulls", "unseen", "outside", "predictions", "metric"
)  # fmt: skip
# Thresholds of the stability index, of shares of rows, and of the share by which an error has grown.
THRESHOLDS = {STABILITY: 0.1, NULLS: 0.1, UNSEEN: 0.1, OUTSIDE: 0.1, PREDICTIONS: 0.1, METRIC: 0.2}
_EXAMPLE = 'Write {"stability": 0.2, "age": {"nulls": 0.3}}.'
# Deviations that chance makes once in a thousand cases.
_DEVIATIONS = 3.0
# The index of noise is its mean if nothing changed; its deviation is at most half of that where there are
# as many ranges as there usually are.
_NOISE = 2.5


@dataclass(frozen=True)
class Thresholds:
    """The threshold of each measure, such as the share of NULL: `common` for all columns, `own` for some."""

    common: Mapping[str, float]
    own: Mapping[str, Mapping[str, float]]

    def find(self, measure: str, column: str | None) -> float:
        return self.own.get(column or "", {}).get(measure, self.common[measure])

    def judge(self, measure: str, column: str | None, excess: float | None) -> str:
        """Return the verdict on `excess`, a difference beyond chance; None, if not measured, gives ok."""
        limit = self.find(measure, column)
        if excess is None or excess < limit / 2:
            return OK
        return WARN if excess < limit else ALARM


def read_limits(text: str | None, columns: Mapping[str, Any]) -> Thresholds:
    """Return the thresholds in a JSON text, for example `{"nulls": 0.2, "age": {"nulls": 0.3}}`.

    A key is a measure, whose value is its threshold for all columns; or a column, whose value has the
    thresholds for this column.
    """
    given = {} if text is None else read_object(text, "thresholds", _EXAMPLE)
    common, own = dict(THRESHOLDS), dict[str, dict[str, float]]()
    for key, value in given.items():
        if isinstance(value, dict):
            if key not in columns:
                raise unknown(
                    f'thresholds names "{key[:60]}", which is not a column of the model', key, columns
                )
            own[key] = {measure: _limit(measure, one) for measure, one in value.items()}
        else:
            common[key] = _limit(key, value)
    return Thresholds(common, own)


def _limit(measure: str, value: object) -> float:
    if measure not in THRESHOLDS:
        raise unknown(f'thresholds names "{measure[:60]}", which is not a measure', measure, THRESHOLDS)
    if not is_number(value) or value <= 0:
        raise CerebroError(f"the threshold of {measure} must be a number above 0, not {str(value)[:60]}")
    return float(value)


def index_beyond(index: float | None, noise: float) -> float | None:
    return None if index is None else index - _NOISE * noise


def share_beyond(now: float, before: float, rows: int, rows_before: int) -> float:
    """Return the difference of two shares, less the difference that chance alone may make."""
    both = (now * rows + before * rows_before) / max(1, rows + rows_before)
    chance = _DEVIATIONS * math.sqrt(both * (1 - both) * (1 / max(1, rows) + 1 / max(1, rows_before)))
    return abs(now - before) - chance


def error_beyond(low: float, before: float, least: float) -> float:
    """Return the growth of an error, as a share of the error before.

    `low` is the lower bound of the error now, and `before` the error before. If `before` is less than
    `least`, the growth is a share of `least`.
    """
    return (low - before) / max(before, least)
