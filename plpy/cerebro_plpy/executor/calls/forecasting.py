"""cerebro.train_forecast: train nets that continue series; a backtest compares them with baselines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NULL_NOT_ALLOWED, WRONG_STATE, CerebroError
from cerebro_plpy.executor.calls import train
from cerebro_plpy.executor.calls.train_order import LEAST_SECONDS, TrainOrder
from cerebro_plpy.executor.starting import begin
from cerebro_plpy.forecasting import backtest, inputs, windows
from cerebro_plpy.forecasting.baselines import BASELINES, BESIDE_NETS, SEASONAL_NAIVE, TOGETHER
from cerebro_plpy.forecasting.document import Forecast
from cerebro_plpy.forecasting.inputs import InputMaker
from cerebro_plpy.forecasting.series import (
    DUPLICATES,
    FILLED,
    IRREGULAR,
    LONGEST_HORIZON,
    OK,
    Series,
    lay_out,
)
from cerebro_plpy.forecasting.steps import TimeStep, find_step
from cerebro_plpy.forecasting.windows import Jobs, Windowed, WindowShape
from cerebro_plpy.logical.options import Validator, drop_nulls, integer, parse_options
from cerebro_plpy.packing import preprocess
from cerebro_plpy.predicting.answering import readings
from cerebro_plpy.predicting.answering.forecasts import WindowNet
from cerebro_plpy.store import names, session
from cerebro_plpy.store.names import Table, TargetTable
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.related import series as store
from cerebro_plpy.store.runs import results

CONFIGS, EPOCHS = 8, 27
NETS = (("nlinear", None), ("dlinear", None), ("nhits", '{"width": [32, 128]}'))
LOSS = "'loss': ['mae'], 'metrics': ['mae']"
WINDOWS = "_windows"
# The level of intervals whose coverage is measured and reported.
LEVEL = 0.9
OPTIONS: Mapping[str, Validator] = {
    **{key: train.OPTIONS[key] for key in ("nets", "backend", "seed", "configs", "epochs", "segments")},
    "window": integer(2, LONGEST_HORIZON),
    "season": integer(1, LONGEST_HORIZON),
}
ForecastStanding = tuple[str, int | None, str | None, float | None, float | None, float | None, bool]


@dataclass(frozen=True)
class ForecastCall:
    """The arguments of cerebro.train_forecast, unchecked."""

    source_table: str | None
    time: str | None
    value: str | None
    series: Sequence[str | None] | None
    horizon: int | None
    name: str | None
    budget: str | None
    columns: Sequence[str | None] | None
    options: str | None


@dataclass(frozen=True)
class ForecastOrder:
    """The checked arguments: the source and its columns, horizon, training, and the tables to write."""

    source: Table
    columns: store.SeriesColumns
    horizon: int
    training: TrainOrder
    windows: TargetTable
    document: TargetTable
    # The time zone in which calendar inputs are computed.
    zone: str


@dataclass(frozen=True)
class Contender:
    """The forecasts of one net, of baselines, or of both joined.

    `chooses` has the forecasts for the windows by which the best contender is chosen, `reports` those for the
    windows by which its errors are reported.
    """

    name: str
    mst_key: int | None
    parameters: str | None
    chooses: np.ndarray
    reports: np.ndarray
    # The baselines whose forecasts are part of the median.
    baselines: Sequence[str] = ()

    @property
    def label(self) -> str:
        """A text that no other contender of the backtest has."""
        return f"{self.mst_key}: {', '.join(self.baselines)}"


@dataclass(frozen=True)
class Backtest:
    """The usable series, their windows, and the contenders with their forecasts.

    `jobs` has the windows for training nets, for choosing the best contender, and for reporting errors.
    """

    step: TimeStep
    series: Sequence[Series]
    jobs: Jobs
    answers: Sequence[Contender]

    @cached_property
    def best(self) -> Contender:
        """The contender whose net or baselines will forecast from now on."""
        jobs = self.jobs
        nets, baselines = dict[str, backtest.Errors](), dict[str, backtest.Errors]()
        for one in self.answers:
            chooses = backtest.find_errors(jobs.chooses, one.chooses, jobs.scales)
            reports = backtest.find_errors(jobs.reports, one.reports, jobs.scales)
            (baselines if one.mst_key is None else nets)[one.label] = chooses, reports
        chosen = backtest.choose_answer(nets, baselines, backtest.find_blocks(jobs.reports))
        return next(one for one in self.answers if one.label == chosen)

    def score(self, one: Contender) -> backtest.BacktestScore:
        """Return the errors of a contender in the windows that are kept for reporting errors."""
        return backtest.measure(self.jobs.reports, one.reports, self.jobs.scales)

    def coverage(self, one: Contender) -> float:
        """Return the share of true values that lie in the contender's 90 % intervals.

        The intervals are computed from the windows by which the best contender is chosen, and tested on the
        windows by which errors are reported.
        """
        apart = backtest.count_apart(self.jobs.chooses)
        radii = backtest.find_radii(backtest.scaled_errors(self.jobs.chooses, one.chooses), apart)
        errors = backtest.scaled_errors(self.jobs.reports, one.reports)
        return backtest.find_coverage(errors, radii[backtest.LEVELS.index(LEVEL)])

    def radii(self, one: Contender) -> np.ndarray:
        """Return how far the intervals around a contender's forecasts reach to both sides.

        They are computed from its errors in all windows on which no net was trained.
        """
        jobs = self.jobs
        chooses = backtest.scaled_errors(jobs.chooses, one.chooses)
        errors = np.concatenate([chooses, backtest.scaled_errors(jobs.reports, one.reports)])
        return backtest.find_radii(
            errors, backtest.count_apart(jobs.chooses) + backtest.count_apart(jobs.reports)
        )


def train_forecast(db: Database, call: ForecastCall) -> list[ForecastStanding]:
    """Train nets on windows of series, compare them with baselines, and return a row for each contender."""
    tested = train_series(db, check(db, call))
    _tell_best(db, tested)
    return _standings(tested)


def train_series(db: Database, order: ForecastOrder) -> Backtest:
    """Train nets on windows of series, store the best contender as the forecast, and return the backtest."""
    zone = order.zone
    read = readings.read_series(db, order.source, order.columns, zone, trains=True)
    step = find_step([one.known for one in read], numbers=order.columns.is_numbered)
    if step is None:
        raise CerebroError(
            f"no series of {order.source.quoted} has two rows with different times", sqlstate=WRONG_STATE
        )
    laid = [lay_out(one, step) for one in read]
    season = order.training.given.get("season", step.season)
    shape = _shape(order, laid, step, season)
    usable = [one for one in laid if one.status in (OK, FILLED) and len(one.values) >= shape.least]
    _tell_series(db, order, laid, step, shape)
    jobs, usable, maker = _cut(order, usable, step, shape)
    parts = [
        store.WindowRows(
            part=part,
            keys=[usable[number].key for number in rows.series.tolist()],
            origins=_origins(db, order, usable, rows, step),
            inputs=maker.make(usable, rows),
            targets=rows.targets,
        )
        for part, rows in ((windows.TRAINS, jobs.trains), (windows.CHOOSES, jobs.chooses))
    ]
    store.write_windows(db, order.windows, parts, numbered=step.is_number)
    _train(db, order, list(parts[0].inputs))
    net = WindowNet(db, order.training.name, usable, inputs=maker, shape=shape)
    tested = Backtest(step, usable, jobs, _find_answers(net, order, jobs))
    best = tested.best
    forecast = Forecast(
        source=order.source.quoted,
        time=order.columns.time.name,
        value=order.columns.value.name,
        series=[column.name for column in order.columns.keys],
        zone=zone,
        shape=shape,
        answer=best.name,
        mst_key=best.mst_key,
        baselines=best.baselines,
        radii=tested.radii(best),
        inputs=maker,
        columns=[column.name for column in (*order.columns.ahead, *order.columns.words)],
        options=order.training.given,
        seconds=order.training.seconds,
    )
    store.write_document(db, order.document, forecast.as_document())
    return tested


def _cut(
    order: ForecastOrder, usable: Sequence[Series], step: TimeStep, shape: WindowShape
) -> tuple[Jobs, list[Series], InputMaker]:
    """Cut the usable series into windows of a shape, and choose the inputs of nets.

    Return the windows, the series with their columns in the order of the inputs, and the maker of the inputs.
    """
    numbers = [column.name for column in order.columns.ahead]
    ahead, static = inputs.split_columns(usable, numbers)
    arranged = inputs.arrange(usable, numbers, [*ahead, *static])
    jobs = windows.share_out(arranged, shape)
    words = [column.name for column in order.columns.words]
    maker = inputs.choose_inputs(step, arranged, jobs.trains, ahead=ahead, static=static, words=words)
    return jobs, arranged, maker


def check(db: Database, call: ForecastCall) -> ForecastOrder:
    """Return the checked arguments of the call; no rows are read yet."""
    for what, value in (("source_table", call.source_table), ("time", call.time), ("value", call.value)):
        if value is None or not value.strip():
            raise CerebroError(f"{what} is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    if call.horizon is None:
        raise CerebroError("horizon is NULL", sqlstate=NULL_NOT_ALLOWED)
    if not 1 <= call.horizon <= LONGEST_HORIZON:
        raise CerebroError(f"horizon is {call.horizon}, it must be from 1 to {LONGEST_HORIZON}")
    for what, listed in (("series", call.series), ("columns", call.columns)):
        if any(name is None for name in listed or ()):
            raise CerebroError(f"{what} holds NULL", sqlstate=NULL_NOT_ALLOWED)
    parse_options(call.options, OPTIONS)
    given = {"configs": CONFIGS, "epochs": EPOCHS, **drop_nulls(json.loads(call.options or "{}"))}
    source = names.resolve_table(db, call.source_table, "source table")
    keys, ahead = (list(dict.fromkeys(map(str, listed or ()))) for listed in (call.series, call.columns))
    columns = readings.find_columns(db, source, str(call.time), str(call.value), keys=keys, ahead=ahead)
    name = call.name or names.with_suffix(str(call.source_table), store.SUFFIX)
    seconds = session.seconds(db, call.budget or "1 minute")
    if seconds < LEAST_SECONDS:
        raise CerebroError(f"budget is {call.budget}", hint="It must be at least one second.")
    for suffix in ("", "_packed", "_packed" + preprocess.VALIDATION, "_nets", "_best"):
        names.target_table(db, names.with_suffix(name, suffix), suffixes=("_summary", "_info"))
    cut = names.with_suffix(name, WINDOWS)
    training = TrainOrder(cut, "y", name, given, round(seconds), None)
    training.check_nets()
    return ForecastOrder(
        source=source,
        columns=columns,
        horizon=call.horizon,
        training=training,
        windows=names.target_table(db, cut),
        document=names.target_table(db, names.with_suffix(name, store.SUFFIX)),
        zone=session.time_zone(db),
    )


def _shape(order: ForecastOrder, laid: Sequence[Series], step: TimeStep, season: int) -> WindowShape:
    """Return the length, horizon and season of the windows; raise an error if all series are too short.

    `laid` are the series after their values were placed on the steps of time.
    """
    lengths = [len(one.values) for one in laid if one.status in (OK, FILLED)]
    enough = [length for length in lengths if length > windows.LEAST_HORIZONS * order.horizon]
    shape = windows.choose_shape(enough, order.horizon, season, order.training.given.get("window"))
    given = order.training.given
    if {"season", "window"} <= given.keys() and given["season"] > given["window"]:
        raise CerebroError(
            f"option season is {given['season']}, more than option window, {given['window']}",
            hint="A window must hold a season.",
        )
    if max(lengths, default=0) >= shape.least:
        return shape
    found = ", ".join(f"{count} {status}" for status, count in _count(laid).items())
    raise CerebroError(
        f"no series of {order.source.quoted} is long enough: a window of {shape.window} steps and 3 times the"
        f" horizon of {order.horizon} need {shape.least}, and the longest has {max(lengths, default=0)}",
        detail=f"A step is {step}. Series: {found or 'none'}.",
        hint=_hint(order, laid),
        sqlstate=WRONG_STATE,
    )


def _hint(order: ForecastOrder, laid: Sequence[Series]) -> str:
    if not order.columns.keys and any(one.status in (IRREGULAR, DUPLICATES) for one in laid):
        return "All rows are one series here. Name the columns that tell several apart: series => ARRAY['…']."
    if order.columns.time.element == "timestamptz" and any(one.status == IRREGULAR for one in laid):
        return f"Days and months are those of the time zone {order.zone}. If the rows are of another, set it."
    return "A shorter horizon, or smaller options window and season, need fewer steps."


def _count(laid: Sequence[Series]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for one in laid:
        found[one.status] = found.get(one.status, 0) + 1
    return found


def _tell_series(
    db: Database, order: ForecastOrder, laid: Sequence[Series], step: TimeStep, shape: WindowShape
) -> None:
    counts = dict(_count(laid))
    short = sum(one.status in (OK, FILLED) and len(one.values) < shape.least for one in laid)
    said = [f"{count} {status}" for status, count in counts.items() if status != OK]
    said += [f"{short} too short to train on"] if short else []
    season = f"a season of {shape.season}" if shape.season > 1 else "no season"
    db.notice(
        f"{len(laid)} series with a step of {step}, {season}, windows of {shape.window} steps"
        + (f"; of them {', '.join(said)}" if said else "")
    )


def _origins(
    db: Database, order: ForecastOrder, usable: Sequence[Series], rows: Windowed, step: TimeStep
) -> list[str]:
    """Return, for each window, the time of its last known value, as text."""
    times = np.empty(len(rows))
    for number in np.unique(rows.series).tolist():
        own = rows.series == number
        times[own] = step.after(usable[number].stamps, rows.origins[own] - 1)
    if step.is_number:
        return [str(round(time)) for time in times.tolist()]
    distinct, places = np.unique(times, return_inverse=True)
    by_wall = step.by_wall or not order.columns.has_zone
    shown = store.show_stamps(db, distinct.tolist(), by_wall=by_wall, zone=order.zone)
    return [shown[place] for place in places.tolist()]


def _train(db: Database, order: ForecastOrder, columns: Sequence[str]) -> None:
    """Pack the windows, make the nets, and search for the best config within the budget."""
    task = order.training
    options: dict[str, Any] = {
        "validation": {"after": str(windows.CHOOSES), "on": store.PART},
        "task": "regression",
        "seed": task.seed,
    }
    if "segments" in task.given:
        options["segments"] = task.given["segments"]
    packed_table = task.table("_packed")
    listed = ", ".join(columns)
    preprocess.pack_training(db, task.source, packed_table, task.target, listed, options=json.dumps(options))
    table = names.resolve_table(db, packed_table, "packed table")
    summary = packed.summary(db, table.schema, table.name)
    search = train.prepare_search(db, task, summary, task.named_nets or NETS, here=True, loss=LOSS)
    about = f"cerebro.train_forecast of {order.source.quoted}"
    begin.begin(db, replace(search, description=about), ends_at=task.began + task.seconds)


def _find_answers(net: WindowNet, order: ForecastOrder, jobs: Jobs) -> list[Contender]:
    """Return the contenders: baselines, medians of baselines, and each net alone and joined with baselines.

    A net is joined only with those baselines with which it has the least error.
    """
    db, task = net.db, order.training
    both = (jobs.chooses, jobs.reports)
    plain = [net.answer_plainly(rows, BASELINES) for rows in both]
    found = [_join([], plain, baselines) for baselines in (*((name,) for name in BASELINES), *TOGETHER)]
    info = names.resolve_table(db, task.table("_info"), "model info table")
    arch = names.resolve_table(db, task.table("_nets"), "model architecture table")
    for row in results.ranked(db, info.quoted, arch.quoted):
        own = [net.answer(rows, row["mst_key"]) for rows in both]
        if all(np.isfinite(one).all() for one in own):
            alone, *joined = (
                replace(
                    _join(own, plain, baselines),
                    name=", ".join([row["net"], *baselines]),
                    mst_key=row["mst_key"],
                    parameters=row["params"],
                )
                for baselines in ((), *BESIDE_NETS)
            )
            # A net stands alone, and with the baselines that go best with it.
            errors = [_mean_error(jobs, one) for one in joined]
            found += [alone, joined[int(np.argmin(errors))]]
    return found


def _mean_error(jobs: Jobs, one: Contender) -> float:
    """Return a contender's mean scaled error; infinity if it is undefined.

    It is measured on the windows by which the best contender is chosen.
    """
    found = backtest.measure(jobs.chooses, one.chooses, jobs.scales).mase
    return found if np.isfinite(found) else np.inf


def _join(
    own: Sequence[np.ndarray], plain: Sequence[Mapping[str, np.ndarray]], baselines: Sequence[str]
) -> Contender:
    """Return a contender; its forecast is the median of the baselines' and, unless `own` is empty, a net's.

    `own` has two arrays of the net's forecasts: for the windows by which the best contender is chosen, and
    for the windows by which errors are reported. `plain` has all baselines' forecasts for the same windows.
    """
    chooses, reports = (
        np.median([*own[place : place + 1], *(plain[place][name] for name in baselines)], axis=0)
        for place in range(2)
    )
    return Contender(", ".join(baselines), None, None, chooses=chooses, reports=reports, baselines=baselines)


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _standings(tested: Backtest) -> list[ForecastStanding]:
    """Return a row for each contender: first the best one, then the others sorted by their errors."""
    best, found = tested.best, list[ForecastStanding]()
    for one in tested.answers:
        score, coverage = tested.score(one), tested.coverage(one)
        scores = (_known(score.mase), _known(score.mae), _known(coverage))
        found.append((one.name, one.mst_key, one.parameters, *scores, one is best))
    return sorted(found, key=_place)


def _place(row: ForecastStanding) -> tuple[bool, float]:
    return not row[-1], np.inf if row[3] is None else row[3]


def _tell_best(db: Database, tested: Backtest) -> None:
    """Send a notice that names the best contender, with its error beside that of the seasonal naive forecast.

    If the best contender is a baseline, the notice also says why no net forecasts.
    """
    best = tested.best
    mase, rows = tested.score(best).mase, len(tested.jobs.reports)
    plain = next(one for one in tested.answers if one.name == SEASONAL_NAIVE)
    naive = tested.score(plain).mase
    said = f"{best.name} answers: MASE {mase:.3g} in {rows} backtests that neither trained nor chose a net"
    if best is not plain and naive == 0:
        said += f", {SEASONAL_NAIVE} 0"
    elif best is not plain:
        change = 1 - mase / naive
        said += f", {SEASONAL_NAIVE} {naive:.3g}: {abs(change):.0%} {'less' if change >= 0 else 'more'} error"
    said += f". Intervals of 90 % held {tested.coverage(best):.0%} of the values"
    if best.mst_key is None:
        found = [tested.score(one).mase for one in tested.answers if one.mst_key is not None]
        beside = f" (the best has MASE {min(found):.3g})" if found else ""
        said += f". No net is better than a baseline by more than chance{beside}, so none answers"
    db.notice(said)
