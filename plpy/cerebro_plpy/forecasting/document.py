"""The document of a forecast: its columns, the net and baselines that answer, and its intervals.

It may come from a user's table, so everything in it is checked when it is read.
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
from cerebro_plpy.forecasting.inputs import MOST_WORDS, PARTS, ColumnScale, InputMaker, StaticColumn
from cerebro_plpy.forecasting.steps import TimeStep, read_step
from cerebro_plpy.forecasting.windows import WindowShape
from cerebro_plpy.logical.options import is_number

VERSION = 1
LONGEST = 100_000


@dataclass(frozen=True)
class Forecast:
    """A trained forecast, with everything that its document stores."""

    # The source and its columns, by their names.
    source: str
    time: str
    value: str
    series: Sequence[str]
    # The time zone in which the calendar counts.
    zone: str
    shape: WindowShape
    # What answers, by its name: the median of the config with this key, if there is one, and of baselines.
    answer: str
    mst_key: int | None
    baselines: Sequence[str]
    # The radius of each interval, (LEVELS, steps of the horizon), in scales of the windows; NaN if unknown.
    radii: np.ndarray
    # How windows become inputs of the net.
    inputs: InputMaker
    # The further columns, options and seconds of the training call, with which it can be repeated.
    columns: Sequence[str]
    options: Mapping[str, Any]
    seconds: int

    @property
    def step(self) -> TimeStep:
        return self.inputs.step

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
            "baselines": list(self.baselines),
            "ahead": [asdict(one) for one in self.inputs.ahead],
            "static": [asdict(one) for one in self.inputs.static],
            "calendar": list(self.inputs.calendar),
            "radii": [[None if x != x else x for x in row] for row in np.round(self.radii, 6).tolist()],
            "columns": list(self.columns),
            "options": dict(self.options),
            "seconds": self.seconds,
        }


def read_forecast(text: str | None, what: str) -> Forecast:
    """Return the forecast in a document. Raise an error, which names `what`, if the document is damaged."""
    try:
        given = json.loads(text or "null")
    except ValueError:
        given = None
    if not isinstance(given, dict) or given.get("version") != VERSION:
        raise _damaged(what, "its version")
    for name in ("source", "time", "value", "zone", "answer"):
        if not isinstance(given.get(name), str):
            raise _damaged(what, name)
    series, columns, baselines = (_words(what, given, name) for name in ("series", "columns", "baselines"))
    shape = WindowShape(*(_size(what, given, name) for name in ("window", "horizon", "season")))
    if shape.season > shape.window:
        raise _damaged(what, "season")
    key, options, seconds = (given.get(name) for name in ("mst_key", "options", "seconds"))
    if type(key) is not int and not (key is None and baselines):
        raise _damaged(what, "mst_key")
    if any(name not in BASELINES for name in baselines):
        raise _damaged(what, "baselines")
    if not isinstance(options, dict):
        raise _damaged(what, "options")
    if type(seconds) is not int or seconds < 1:
        raise _damaged(what, "seconds")
    return Forecast(
        source=given["source"],
        time=given["time"],
        value=given["value"],
        series=series,
        zone=given["zone"],
        shape=shape,
        answer=given["answer"],
        mst_key=key,
        baselines=baselines,
        radii=_radii(what, given.get("radii"), shape.horizon),
        inputs=_inputs(what, given),
        columns=columns,
        options=options,
        seconds=seconds,
    )


def _words(what: str, given: Mapping[str, Any], name: str) -> list[str]:
    found = given.get(name)
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise _damaged(what, name)
    return found


def _inputs(what: str, given: Mapping[str, Any]) -> InputMaker:
    calendar = given.get("calendar")
    if not isinstance(calendar, list) or any(part not in PARTS for part in calendar):
        raise _damaged(what, "calendar")
    ahead = [ColumnScale(*_scale(what, "ahead", one)) for one in _listed(what, given, "ahead")]
    static = []
    for one in _listed(what, given, "static"):
        column, center, scale = _scale(what, "static", one)
        words = one.get("words")
        if (
            not isinstance(words, list)
            or len(words) > MOST_WORDS
            or not all(isinstance(word, str) for word in words)
        ):
            raise _damaged(what, "static")
        static.append(StaticColumn(column, tuple(words), center, scale))
    return InputMaker(read_step(given.get("step")), ahead, static, calendar)


def _listed(what: str, given: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = given.get(name)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise _damaged(what, name)
    return found


def _scale(what: str, name: str, known: Mapping[str, Any]) -> tuple[str, float, float]:
    column, center, scale = (known.get(key) for key in ("column", "center", "scale"))
    if not isinstance(column, str) or not is_number(center) or not is_number(scale) or scale <= 0:
        raise _damaged(what, name)
    return column, center, scale


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
        f"the document in {what} is not one that train_forecast wrote: {name} is wrong",
        hint="Train the forecast again, under another name.",
        sqlstate=DATA_CORRUPTED,
    )
