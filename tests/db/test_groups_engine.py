"""The engine of runs on groups: JAX where nothing names one and the nets suit it, else the usual one."""

from __future__ import annotations

import json
from typing import Any

import pytest

import nets
from trial import ADAM, Trial, blobs, rows_of

# JAX starts in sessions of its own, and in this one after the transactions.
pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

FEATURES, ROWS, GROUPS = nets.FEATURES, 300, 100
TENSORFLOW = {"backend": "tensorflow"}
GRID = """{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
    'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.001, 0.5, 'log']}]}"""
LOSS = """
from keras import ops

def own_loss(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred), axis=-1)
"""


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(ROWS, features=FEATURES)))
    trial.sql(
        "CREATE TABLE sales AS SELECT x, y, number %% %s AS shop"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b",
        GROUPS,
    )
    trial.pack("sales", "packed", options={"group_by": "shop"})
    trial.model(nets.mlp())
    trial.model(nets.lstm())
    trial.sql("SELECT cerebro.register_function('own_loss', %s, 'loss')", LOSS)
    own = "loss='own_loss', optimizer='SGD(lr=0.1)', metrics=['accuracy']"
    for name, model_id, compiled in (("configs", 1, ADAM), ("recurrent", 2, ADAM), ("own", 1, own)):
        trial.select(name, [model_id], [compiled], ["batch_size=10,epochs=1"])


def train(trial: Trial, out: str, configs: str = "configs", **more: Any) -> list[str]:
    """Train configs on the groups, and return the engines that did it."""
    trial.fit("packed", out, configs, 1, **more)
    return [row[0] for row in trial.sql(f"SELECT DISTINCT backend FROM {out}_info")]


def search(trial: Trial, out: str, **options: Any) -> int:
    trial.call(
        "madlib_keras_automl", "packed", out, "arch", f"{out}_best", [1], GRID, "{'batch_size': [10]}",
        "asha", "num_configs=2, num_iterations=1, eta=2", 5, options={"threads": 1, **options},
    )  # fmt: skip
    return trial.value(f"SELECT run_id FROM {out}_summary")


def test_many_groups_train_on_jax_if_nothing_names_an_engine(trial: Trial) -> None:
    assert train(trial, "unnamed") == ["jax"]
    (plan,) = json.loads(trial.value("SELECT cerebro.explain_fit('packed', 'configs', 1, format => 'json')"))
    assert plan["Plan"]["Settings"]["backend"] == "jax"
    assert train(trial, "named", options=TENSORFLOW) == ["tensorflow"]
    trial.sql("INSERT INTO cerebro.settings VALUES ('backend', 'tensorflow')")
    try:
        assert train(trial, "fixed") == ["tensorflow"]
    finally:
        trial.sql("DELETE FROM cerebro.settings WHERE name = 'backend'")


def test_few_groups_and_groups_of_many_sizes_stay_on_the_usual_engine(trial: Trial) -> None:
    """JAX compiles each size anew; for few groups nothing is gained."""
    trial.sql("CREATE TABLE few_sales AS SELECT x, y, shop % 10 AS shop FROM sales")
    more = " UNION ALL ".join(f"SELECT * FROM sales WHERE shop < {most}" for most in (GROUPS, 3, 2, 1))
    trial.sql(f"CREATE TABLE sizes_sales AS {more}")
    for name in ("few", "sizes"):
        trial.pack(f"{name}_sales", f"{name}_packed", options={"group_by": "shop"})
        trial.fit(f"{name}_packed", name, "configs", 1)
        assert trial.sql(f"SELECT DISTINCT backend FROM {name}_info") == [("tensorflow",)]


@pytest.mark.parametrize("configs", ["recurrent", "own"])
def test_recurrent_nets_and_functions_of_users_stay_on_the_usual_engine(trial: Trial, configs: str) -> None:
    assert train(trial, f"of_{configs}", configs) == ["tensorflow"]


def test_models_stay_on_the_engine_that_trained_them(trial: Trial) -> None:
    train(trial, "warm", options=TENSORFLOW)
    assert train(trial, "warm", warm_start=True) == ["tensorflow"]
    run = search(trial, "found", **TENSORFLOW)
    search(trial, "again", replay=run)
    weights = "SELECT shop, mst_key, md5(model_weights) FROM {} ORDER BY 1, 2"
    assert trial.sql(weights.format("again")) == trial.sql(weights.format("found"))
    search(trial, "unnamed_search")
    assert trial.sql("SELECT DISTINCT backend FROM unnamed_search_info") == [("jax",)]


def test_groups_in_the_callers_session_stay_on_its_engine(trial: Trial) -> None:
    trial.sql("BEGIN")
    try:
        trial.sql("CREATE TABLE later AS TABLE packed; CREATE TABLE later_summary AS TABLE packed_summary")
        trial.sql("CREATE TABLE later_groups AS TABLE packed_groups")
        trial.fit("later", "inline", "configs", 1)
        assert trial.sql("SELECT DISTINCT backend FROM inline_info") == [("tensorflow",)]
    finally:
        trial.sql("ROLLBACK")
