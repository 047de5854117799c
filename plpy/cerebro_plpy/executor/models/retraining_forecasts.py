"""Trains a registered forecast again, and compares two versions on windows on which neither was trained."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.executor.calls import forecasting
from cerebro_plpy.executor.calls.forecasting import Backtest, ForecastCall, ForecastOrder
from cerebro_plpy.forecasting import backtest, windows
from cerebro_plpy.forecasting.document import Forecast
from cerebro_plpy.logical.options import parse_options
from cerebro_plpy.predicting.answering import forecasts
from cerebro_plpy.predicting.answering.forecasts import WindowNet
from cerebro_plpy.store.models import retraining
from cerebro_plpy.store.names import Table

# The metric by which forecasts are compared.
METRIC = "mase"


@dataclass(frozen=True)
class ComparedWindows:
    """The errors of two versions in the same windows, and the block of each window."""

    new: np.ndarray
    previous: np.ndarray
    blocks: np.ndarray


def check(
    db: Database,
    found: Forecast,
    source: Table,
    *,
    budget: str | None,
    options: str | None,
) -> ForecastOrder:
    """Return the checked arguments for training a registered forecast again, on the rows of `source`.

    Each of the `options` replaces the option that the earlier training had.
    """
    parse_options(options, forecasting.OPTIONS)
    call = ForecastCall(
        source_table=source.quoted,
        time=found.time,
        value=found.value,
        series=list(found.series),
        horizon=found.shape.horizon,
        name=retraining.temporary(retraining.MODELS),
        budget=budget or f"{found.seconds} seconds",
        columns=list(found.columns),
        options=json.dumps({**found.options, **json.loads(options or "{}")}),
    )
    return replace(forecasting.check(db, call), zone=found.zone)


def compare(db: Database, tested: Backtest, source: Table, previous: str) -> ComparedWindows:
    """Return the errors of both versions in the windows that the new training kept to report errors.

    These windows are the newest of each series, so the previous version was not trained on them either.
    Windows that the previous version cannot answer are left out.
    """
    held = forecasts.find_registered(db, previous)
    found, reports = held.forecast, tested.jobs.reports
    laid = {one.key: one for one in forecasts.read_series(db, found, source).laid if one.is_answered}
    series, origins, places = [], [], []
    for number, one in enumerate(tested.series):
        own = np.flatnonzero((reports.series == number) & (reports.origins >= found.shape.window))
        again = laid.get(one.key)
        if len(own) and again is not None and len(again.values) == len(one.values):
            series.append(again)
            origins.append(reports.origins[own])
            places.append(own)
    if not places or found.step != tested.step or found.shape.horizon != reports.followed.shape[1]:
        nothing = np.empty(0)
        return ComparedWindows(nothing, nothing, nothing)
    net = WindowNet(db, held.name, series, inputs=found.inputs, shape=found.shape, is_registered=True)
    answers = forecasts.answer_best(net, windows.cut(series, origins, found.shape), found)
    chosen = np.concatenate(places)
    rows, scales = reports.take(chosen), tested.jobs.scales
    new, old = (backtest.find_errors(rows, one, scales) for one in (tested.best.reports[chosen], answers))
    known = np.isfinite(new) & np.isfinite(old)
    return ComparedWindows(new[known], old[known], backtest.find_blocks(rows)[known])
