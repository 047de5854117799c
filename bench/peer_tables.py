"""Fits one contender to the rows of a table for `rivals.py`, in a process of its own, and answers other rows.

The arguments are the name of the contender, a folder, a seed and the seconds that it may take. The folder has
`seen.csv` and `unseen.csv`, and `about.json` with the names of the numeric columns and the number of classes.
The process writes `answers.npy`: a probability for each class, or a quantity. It prints the seconds and its
own peak of memory in bytes.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TARGET, MISSING = "target", "missing"


@dataclass(frozen=True)
class Order:
    """The rows to fit and those to answer; `classes` is None if the target is a quantity."""

    seen: pd.DataFrame
    y: np.ndarray
    unseen: pd.DataFrame
    numbers: Sequence[str]
    classes: int | None
    seed: int
    seconds: int
    folder: Path

    @property
    def categories(self) -> list[str]:
        return [name for name in self.seen.columns if name not in self.numbers]

    def answers(self, model: Any, x: Any) -> np.ndarray:
        return model.predict_proba(x) if self.classes else model.predict(x)

    def with_categories(self, x: pd.DataFrame) -> pd.DataFrame:
        """Return the rows with the categories of all rows as pandas' categories, which trees split by."""
        both = pd.concat([self.seen, self.unseen])
        return x.astype({name: pd.CategoricalDtype(both[name].dropna().unique()) for name in self.categories})


def _catboost(order: Order) -> np.ndarray:
    from catboost import CatBoostClassifier, CatBoostRegressor  # pyright: ignore[reportMissingImports]

    kind = CatBoostClassifier if order.classes else CatBoostRegressor
    filled = dict.fromkeys(order.categories, MISSING)
    model = kind(verbose=0, cat_features=order.categories, random_seed=order.seed, allow_writing_files=False)
    model.fit(order.seen.fillna(filled), order.y)
    return order.answers(model, order.unseen.fillna(filled))


def _lightgbm(order: Order) -> np.ndarray:
    from lightgbm import LGBMClassifier, LGBMRegressor  # pyright: ignore[reportMissingImports]

    kind = LGBMClassifier if order.classes else LGBMRegressor
    model = kind(verbose=-1, random_state=order.seed).fit(order.with_categories(order.seen), order.y)
    return order.answers(model, order.with_categories(order.unseen))


def _gradient_boosting(order: Order) -> np.ndarray:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind: Any = HistGradientBoostingClassifier if order.classes else HistGradientBoostingRegressor
    model = kind(categorical_features="from_dtype", random_state=order.seed)
    model.fit(order.with_categories(order.seen), order.y)
    return order.answers(model, order.with_categories(order.unseen))


def _mlp(order: Order) -> np.ndarray:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    kinds = OneHotEncoder(handle_unknown="ignore", max_categories=100)
    columns = ColumnTransformer([("numbers", numbers, order.numbers), ("kinds", kinds, order.categories)])
    low, spread = (0.0, 1.0) if order.classes else (order.y.mean(), order.y.std())
    kind = MLPClassifier if order.classes else MLPRegressor
    model = make_pipeline(columns, kind(early_stopping=True, random_state=order.seed))
    model.fit(order.seen, order.y if order.classes else (order.y - low) / spread)
    found = order.answers(model, order.unseen)
    return found if order.classes else found * spread + low


def _autogluon(order: Order) -> np.ndarray:
    from autogluon.tabular import TabularPredictor  # pyright: ignore[reportMissingImports]

    kind = "regression" if order.classes is None else ("binary" if order.classes == 2 else "multiclass")
    predictor = TabularPredictor(
        TARGET,
        problem_type=kind,
        eval_metric="log_loss" if order.classes else "r2",
        path=str(order.folder / "autogluon"),
        verbosity=0,
    )
    predictor.fit(
        order.seen.assign(**{TARGET: order.y}), time_limit=order.seconds, presets="best_quality", num_gpus=0
    )
    if order.classes is None:
        return predictor.predict(order.unseen).to_numpy()
    return predictor.predict_proba(order.unseen).sort_index(axis=1).to_numpy()


def _pytabkit(name: str) -> Callable[[Order], np.ndarray]:
    def fit(order: Order) -> np.ndarray:
        kind = getattr(import_module("pytabkit"), f"{name}_{'Classifier' if order.classes else 'Regressor'}")
        model = kind(device="cpu", random_state=order.seed, n_threads=2)
        filled = dict.fromkeys(order.categories, MISSING)
        middle = order.seen[list(order.numbers)].median()
        seen, unseen = (x.fillna(filled).fillna(middle) for x in (order.seen, order.unseen))
        model.fit(seen, order.y, cat_col_names=order.categories)
        return order.answers(model, unseen)

    return fit


CONTENDERS: Mapping[str, Callable[[Order], np.ndarray]] = {
    "CatBoost": _catboost,
    "LightGBM": _lightgbm,
    "HistGradientBoosting": _gradient_boosting,
    "MLP": _mlp,
    "AutoGluon": _autogluon,
    "RealMLP-TD": _pytabkit("RealMLP_TD"),
    "TabM-D": _pytabkit("TabM_D"),
}
# The package of each contender, and what to import of those that are imported by another name.
PACKAGES = {
    "CatBoost": "catboost",
    "LightGBM": "lightgbm",
    "HistGradientBoosting": "scikit-learn",
    "MLP": "scikit-learn",
    "AutoGluon": "autogluon.tabular",
    "RealMLP-TD": "pytabkit",
    "TabM-D": "pytabkit",
}
IMPORTED = {"scikit-learn": "sklearn.ensemble"}


def _read(folder: Path, seed: int, seconds: int) -> Order:
    about = json.loads((folder / "about.json").read_text())
    found = {}
    for part in ("seen", "unseen"):
        x = pd.read_csv(folder / f"{part}.csv", dtype=object, keep_default_na=False, na_values=[""])
        found[part] = x.astype(dict.fromkeys([*about["numbers"], TARGET], float))
    y = found["seen"].pop(TARGET).to_numpy()
    found["unseen"].pop(TARGET)
    y = y.astype(int) if about["classes"] else y
    return Order(found["seen"], y, found["unseen"], about["numbers"], about["classes"], seed, seconds, folder)


def main(contender: str, folder: Path, seed: int, seconds: int) -> None:
    warnings.simplefilter("ignore")
    order = _read(folder, seed, seconds)
    # The import of a package is not part of the fit.
    package = PACKAGES[contender]
    import_module(IMPORTED.get(package, package))
    clock = time.perf_counter()
    answers = CONTENDERS[contender](order)
    taken = time.perf_counter() - clock
    np.save(folder / "answers.npy", np.asarray(answers, float))
    print(json.dumps({"seconds": taken, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
