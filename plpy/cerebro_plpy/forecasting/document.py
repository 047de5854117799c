"""The document of a forecast: what is forecast from which rows, what answers, and how wide intervals are.

It may come from a user's table, so all of it is checked when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cerebro_plpy.errors import DATA_CORRUPTED, CerebroError
from cerebro_plpy.forecasting.backtest import LEVELS
from cerebro_plpy.forecasting.baselines import BASELINES
from cerebro_plpy.forecasting.steps import TimeStep, read_step
from cerebro_plpy.forecasting.windows import ColumnScale, WindowShape
from cerebro_plpy.logical.options import is_number

VERSION = 1
LONGEST = 100_000


@dataclass(frozen=True)
class Forecast:
    """A trained forecast."""

    # The source and its columns, by their names.
    source: str
    time: str
    value: str
    series: Sequence[str]
    # The time zone in which the calendar counts, and the step.
    zone: str
    step: TimeStep
    shape: WindowShape
    # What answers: the config with this key, or else the baseline of this name.
    answer: str
    mst_key: int | None
    # For each of LEVELS and each step of the horizon, in scales of the windows; NaN where nobody knows.
    radii: np.ndarray
    # The columns that are known ahead.
    ahead: Sequence[ColumnScale] = ()

    def as_document(self) -> Mapping[str, Any]:
        return {
            "version": VERSION,
            "source": self.source,
            "time": self.time,
            "value": self.value,
            "series": list(self.series),
            "zone": self.zone,
            "step": self.step.document,
            "window": self.shape.window,
            "horizon": self.shape.horizon,
            "season": self.shape.season,
            "answer": self.answer,
            "mst_key": self.mst_key,
            "ahead": [asdict(one) for one in self.ahead],
            "radii": [[None if x != x else x for x in row] for row in np.round(self.radii, 6).tolist()],
        }


def read_forecast(text: str | None, what: str) -> Forecast:
    """Read the document of a forecast, or refuse what is none."""
    try:
        given = json.loads(text or "null")
    except ValueError:
        given = None
    if not isinstance(given, dict) or given.get("version") != VERSION:
        raise _damaged(what, "its version")
    for name in ("source", "time", "value", "zone", "answer"):
        if not isinstance(given.get(name), str):
            raise _damaged(what, name)
    series = given.get("series")
    if not isinstance(series, list) or not all(isinstance(name, str) for name in series):
        raise _damaged(what, "series")
    shape = WindowShape(*(_size(what, given, name) for name in ("window", "horizon", "season")))
    if shape.season > shape.window:
        raise _damaged(what, "season")
    key = given.get("mst_key")
    if type(key) is not int and not (key is None and given["answer"] in BASELINES):
        raise _damaged(what, "mst_key")
    return Forecast(
        source=given["source"],
        time=given["time"],
        value=given["value"],
        series=series,
        zone=given["zone"],
        step=read_step(given.get("step")),
        shape=shape,
        answer=given["answer"],
        mst_key=key,
        radii=_radii(what, given.get("radii"), shape.horizon),
        ahead=_ahead(what, given.get("ahead")),
    )


def _ahead(what: str, given: Any) -> list[ColumnScale]:
    if not isinstance(given, list):
        raise _damaged(what, "ahead")
    found = []
    for row in given:
        known = row if isinstance(row, dict) else {}
        column, center, scale = (known.get(name) for name in ("column", "center", "scale"))
        if not isinstance(column, str) or not is_number(center) or not is_number(scale) or scale <= 0:
            raise _damaged(what, "ahead")
        found.append(ColumnScale(column, center, scale))
    return found


def _size(what: str, given: Mapping[str, Any], name: str) -> int:
    found = given.get(name)
    if type(found) is not int or not 1 <= found <= LONGEST:
        raise _damaged(what, name)
    return found


def _radii(what: str, given: Any, horizon: int) -> np.ndarray:
    rows = given if isinstance(given, list) else []
    right = len(rows) == len(LEVELS) and all(
        isinstance(row, list)
        and len(row) == horizon
        and all(one is None or (is_number(one) and one >= 0) for one in row)
        for row in rows
    )
    if not right:
        raise _damaged(what, "radii")
    return np.array([[np.nan if one is None else one for one in row] for row in rows], np.float64)


def _damaged(what: str, name: str) -> CerebroError:
    return CerebroError(
        f"the document in {what} is not what train_forecast writes: look at {name}",
        hint="Train the forecast anew, under another name.",
        sqlstate=DATA_CORRUPTED,
    )
