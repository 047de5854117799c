"""The estimators for scikit-learn: fits, data frames, clean-up, and scikit-learn's own checks."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cerebro_db import CerebroError, Database, choice
from cerebro_db.estimators import CerebroClassifier, CerebroRegressor
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_iris,
    load_wine,
    make_classification,
    make_regression,
)
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import KFold, PredefinedSplit, StratifiedKFold, cross_val_score, cross_validate
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

QUICK = {"epochs": 2, "random_state": 1, "options": {"backend": "jax"}}
# The tables that fits have left.
STANDING = """SELECT relname FROM pg_class WHERE relname LIKE 'fit\\_%' AND relkind IN ('r', 'p')
    ORDER BY 1"""
# Checks that pickle the estimator, which must have a database's URL: an open database cannot be pickled.
PICKLING = ("check_estimators_pickle", "check_estimators_overwrite_params")


def test_a_classifier_learns_and_keeps_the_best(client: Database) -> None:
    x, y = make_classification(120, n_features=4, random_state=1)
    names = np.array(["no", "yes"])[y]
    made = CerebroClassifier(
        client, **{**QUICK, "epochs": 8}, grid={"learning_rate": [1e-5, 0.03], "batch_size": 10}
    )
    assert made.fit(x, names).score(x, names) > 0.8
    assert made.best_params_["optimizer"]["arguments"]["learning_rate"] == 0.03
    assert list(made.classes_) == ["no", "yes"]
    np.testing.assert_allclose(made.predict_proba(x).sum(axis=1), 1, atol=1e-5)
    made.close()
    assert client.rows(STANDING) == []
    made.close()


@pytest.mark.slow
def test_what_a_fit_leaves_goes_with_the_estimator(client: Database) -> None:
    x, y = make_classification(60, n_features=4, random_state=1)
    runs = "SELECT run_id FROM cerebro.runs ORDER BY 1"
    before, known = client.rows(STANDING), client.rows(runs)
    assert len(cross_val_score(CerebroClassifier(client, **QUICK), x, y, cv=2)) == 2
    assert (client.rows(STANDING), client.rows(runs)) == (before, known)
    with CerebroClassifier(client, **QUICK).fit(x, y) as made:
        (where,) = client.rows("SELECT current_user AS role")
        assert made.models_.startswith(f"estimators_{where['role']}.fit_")
        first = made.models_
        # A second fit takes the place of the first.
        assert made.fit(x, y).models_ != first
        assert client.rows("SELECT to_regclass(%s) AS name", first) == [{"name": None}]
    assert (client.rows(STANDING), client.rows(runs)) == (before, known)


def test_what_is_kept_stays(client: Database) -> None:
    x, y = make_classification(60, n_features=4, random_state=1)
    models = CerebroClassifier(client, **QUICK).fit(x, y).keep()
    assert client.rows(f"SELECT count(*) AS models FROM {models}") == [{"models": 1}]
    schema = models.partition(".")[0]
    client.rows(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.filterwarnings("ignore::cerebro_db.CerebroWarning")
@pytest.mark.parametrize(
    "wrong",
    [{"grid": {"hidden": 8}}, {"search": "grid"}, {"grid": {"optimizer": "SGD", "learning_rate": 1e30}}],
    ids=["argument", "search", "all fail"],
)
def test_a_fit_that_fails_leaves_no_table(client: Database, wrong: dict[str, Any]) -> None:
    x, y = make_classification(120, n_features=4, random_state=1)
    before = client.rows(STANDING)
    with pytest.raises(CerebroError):
        CerebroClassifier(client, **{**QUICK, **wrong}).fit(np.multiply(x, 1e9), y)
    assert client.rows(STANDING) == before


@pytest.mark.slow
def test_a_regressor_searches_in_a_pipeline(client: Database) -> None:
    x, y, *_ = make_regression(120, n_features=3, random_state=1)
    grid = {"optimizer": choice(["Adam", "SGD"]), "learning_rate": 0.03, "batch_size": 10}
    made = CerebroRegressor(client, **{**QUICK, "epochs": 20}, hidden=(16, 8), grid=grid)
    scaled = make_pipeline(StandardScaler(), made)
    assert cross_val_score(scaled, x, (y - y.mean()) / y.std(), cv=2).mean() > 0.5


def test_an_architecture_may_be_made_for_the_data(client: Database) -> None:
    import nets

    x, y = make_classification(40, n_features=5, n_informative=3, n_classes=3, random_state=1)
    made = CerebroClassifier(client, model=lambda features, classes: nets.mlp(features, 4, classes), **QUICK)
    assert made.fit(x, y).predict_proba(x).shape == (40, 3)
    assert clone(made).db is client


def mixed(rows: int = 300) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a frame of mixed columns, and an amount for each row that follows from plan, city and y."""
    rng: Any = np.random.default_rng(3)
    missing = rng.random(rows) < 0.1
    frame = pd.DataFrame(
        {
            "age": pd.Series(rng.integers(18, 80, rows), dtype="Int64").mask(missing).array,
            "plan": pd.Categorical(rng.choice(["free", "basic", "pro"], rows)),
            "city": rng.choice(["Oslo", "Turku", None], rows),
            "seen": pd.date_range("2026-01-01", periods=rows, freq="7h", tz="Europe/Oslo"),
            "y": rng.normal(size=rows),
        },
        index=rng.permutation(rows),
    )
    paid = 3.0 * (frame["plan"] == "pro") + (frame["city"] == "Oslo") + 0.1 * frame["y"]
    return frame, paid.to_numpy("float64")


@pytest.mark.slow
def test_a_frame_of_mixed_columns_goes_as_it_is(client: Database) -> None:
    x, paid = mixed()
    labels = np.where(paid > 1.5, "dear", "cheap")
    said: Any = {**QUICK, "epochs": 25, "grid": {"learning_rate": 0.02}}
    made: Any = CerebroClassifier(client, **said)
    with made.fit(x, labels):
        assert made.score(x, labels) > 0.95
        assert (made.n_features_in_, list(made.feature_names_in_)) == (5, list(x.columns))
        # Predictions are in the order of rows, whatever the index; a plan that was never seen is no error.
        odd = x.head(40).assign(plan=["never"] * 3 + list(x["plan"].iloc[3:40]))
        np.testing.assert_allclose(made.predict_proba(odd)[3:], made.predict_proba(x)[3:40], atol=1e-6)
        with pytest.raises(ValueError, match="feature names"):
            made.predict(x.drop(columns="city"))
    assert client.rows(STANDING) == []
    strictly: Any = {"error_score": "raise"}
    assert cross_val_score(CerebroRegressor(client, **said), x, paid, cv=2, **strictly).min() > 0.8
    assert client.rows(STANDING) == []


@pytest.mark.slow
def test_a_frame_may_say_what_its_columns_become_and_which_net(client: Database) -> None:
    x, paid = mixed()
    said = {"plan": {"encode": "embed"}, "seen": {"parts": ["weekday"]}}
    with CerebroRegressor(client, model="tabular", columns=said, **QUICK).fit(x, paid) as made:
        features = client.run(made.run_id_).packed.summary()["feature_specification"]["columns"]
        ways = {one["name"]: one for one in features}
        assert ways["plan"]["encode"] == "embed" and ways["seen"]["parts"] == ["weekday"]
    numbers = x[["y"]].assign(z=np.where(x["y"] > 1, np.nan, 1.0))
    with pytest.raises(ValueError, match="NaN"):
        CerebroRegressor(client, **QUICK).fit(numbers, paid)
    with CerebroRegressor(client, columns="auto", **QUICK).fit(numbers, paid) as made:
        assert len(made.predict(numbers)) == len(numbers)
    with pytest.raises(CerebroError, match="columns of a data frame"):
        CerebroRegressor(client, columns="auto", **QUICK).fit(numbers.to_numpy(), paid)
    with pytest.raises(CerebroError, match="columns of many kinds"):
        CerebroRegressor(client, model=lambda *_: None, **QUICK).fit(x, paid)
    with pytest.raises(ValueError, match="NaN"):
        CerebroRegressor(client, **QUICK).fit(x, np.where(paid > 1, np.nan, paid))
    assert client.rows(STANDING) == []


# How far our R² or accuracy may be below scikit-learn's; other seeds change it as much.
TOLERANCE = 0.03
TABLES = {
    "diabetes": load_diabetes,
    "wine": load_wine,
    "breast_cancer": load_breast_cancer,
    "iris": load_iris,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("table", TABLES)
def test_defaults_are_no_worse_than_scikit_learns_own_on_scaled_rows(client: Database, table: str) -> None:
    x, y = TABLES[table](return_X_y=True)
    ours: Any = CerebroClassifier(client, random_state=1, options={"backend": "jax"})
    theirs: Any = MLPClassifier(random_state=1)
    folds: Any = StratifiedKFold(3, shuffle=True, random_state=0)
    if table == "diabetes":
        ours = CerebroRegressor(client, random_state=1, options={"backend": "jax"})
        theirs = TransformedTargetRegressor(MLPRegressor(random_state=1), transformer=StandardScaler())
        folds = KFold(3, shuffle=True, random_state=0)
    expected = cross_val_score(make_pipeline(StandardScaler(), theirs), x, y, cv=folds).mean()
    strictly: Any = {"error_score": "raise"}
    assert cross_val_score(ours, x, y, cv=folds, **strictly).mean() >= expected - TOLERANCE


@pytest.mark.slow
def test_rows_far_from_zero_are_learned(client: Database) -> None:
    rows: Any = make_regression(150, n_features=3, random_state=1)
    x, y = rows
    made = CerebroRegressor(client, epochs=30, grid={"learning_rate": 0.02}, random_state=1)
    made.options = QUICK["options"]
    assert made.fit(1e4 + 300 * x, 5e6 + y).score(1e4 + 300 * x, 5e6 + y) > 0.9
    run = client.run(made.run_id_)
    run_table = run.info()["validation_table"]
    assert (len(run.packed), run.info()["seed"]) == (135, 1)
    made.close()
    (base,) = re.findall(r"fit_[0-9a-f]+", run_table)
    assert client.rows("SELECT relname FROM pg_class WHERE relname LIKE %s", f"{base}%") == []
    plain = CerebroRegressor(client, scale=False, patience=None, **QUICK).fit(x, y)
    assert client.run(plain.run_id_).info()["validation_table"] is None
    assert len(client.run(plain.run_id_).packed) == 150


@pytest.mark.slow
def test_an_estimator_that_is_given_a_url_can_be_pickled(client: Database, client_database: str) -> None:
    x, y, *_ = make_regression(40, n_features=2, random_state=1)
    made = CerebroRegressor(f"postgresql:///{client_database}", **QUICK).fit(x, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(made)).predict(x), made.predict(x))  # noqa: S301


@pytest.fixture(scope="module")
def alone(client: Database) -> Any:
    """Yield the client with the setting of one segment: the checks have too few rows for two."""
    client.rows("UPDATE cerebro.settings SET value = '1' WHERE name = 'segments'")
    yield client
    client.rows("UPDATE cerebro.settings SET value = '2' WHERE name = 'segments'")


def _checks(estimator: Any) -> list[tuple[str, Any]]:
    pairs: Any = estimator_checks_generator(estimator)
    return [(check.func.__name__, check) for _, check in pairs]


NAMES = {kind: [name for name, _ in _checks(kind())] for kind in (CerebroClassifier, CerebroRegressor)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        pytest.param(kind, number, id=f"{kind.__name__}-{name}-{number}")
        for kind, names in NAMES.items()
        for number, name in enumerate(names)
    ],
)
def test_scikit_learns_own_checks_hold(alone: Database, client_database: str, kind: Any, number: int) -> None:
    estimator = kind(
        f"postgresql:///{client_database}" if NAMES[kind][number] in PICKLING else alone,
        epochs=40,
        grid={"learning_rate": 0.05, "batch_size": 8},
        random_state=1,
        options={"backend": "jax"},
    )
    _checks(estimator)[number][1](estimator)


def test_scikit_learns_cross_validate_has_the_same_folds(client: Database) -> None:
    client.rows(
        "CREATE TABLE folded AS SELECT ARRAY[sin(i), cos(i)]::real[] AS x, i % 7 % 3 AS y,"
        " 'part ' || i * i % 5 AS part FROM generate_series(1, 200) AS i"
    )
    client.pack("folded", x="x", y="y", into="folded_packed", folds={"column": "part"})
    frame = pd.DataFrame(client.rows("SELECT x, y, dense_rank() OVER (ORDER BY part) AS fold FROM folded"))
    x, y, split = np.stack(frame["x"].to_list()), frame["y"].to_numpy(), PredefinedSplit(frame["fold"])
    theirs = cross_validate(DummyClassifier(), x, y, cv=split, return_indices=True)["indices"]["test"]
    rows = "SELECT __fold__ AS fold, x AS bytes, x_shape AS shape FROM folded_packed ORDER BY 1"
    ours: dict[int, list[tuple[float, ...]]] = {}
    for row in client.rows(rows):
        values = np.frombuffer(row["bytes"], "<f4").reshape(row["shape"])
        ours.setdefault(row["fold"], []).extend(map(tuple, values.tolist()))
    assert len(theirs) == len(ours) > 1
    for fold, places in enumerate(theirs, 1):
        assert sorted(map(tuple, x[places].astype("float32").tolist())) == sorted(ours[fold])
