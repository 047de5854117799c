"""Losses with any number of values, configs that fail, and functions that users pickle in PL/Python."""

from __future__ import annotations

import pytest

import nets
from trial import Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES = 12
BACKENDS = [
    pytest.param("jax", marks=pytest.mark.slow),
    pytest.param("tensorflow", marks=pytest.mark.tensorflow),
]
MINE = "optimizer='SGD(lr=0.1)',loss='my_loss',metrics=['accuracy']"
FITTED = "batch_size=16,epochs=1"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(120, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed", buffer_size=25)
    trial.model(nets.mlp(FEATURES))


def register(trial: Trial, name: str, source: str) -> None:
    trial.sql("SELECT cerebro.register_function(%s, %s, 'loss')", name, source)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loss_may_give_a_number_for_each_class(trial: Trial, backend: str) -> None:
    """A loss with a value for each class trains as the mean of these values does, also with weights."""
    source = "from keras import ops\n\ndef {}(y_true, y_pred):\n    return {}"
    register(trial, "each", source.format("each", "ops.square(y_pred - y_true)"))
    register(trial, "row", source.format("row", "ops.mean(ops.square(y_pred - y_true), axis=-1)"))
    weighed = "batch_size=16,epochs=1,class_weight={0: 2.0, 1: 0.5}"
    for name in ("each", "row"):
        trial.sql("DROP TABLE IF EXISTS one, one_summary")
        trial.select("one", [1], [MINE.replace("my_loss", name)], [FITTED, weighed])
        trial.fit("packed", f"{name}_{backend}", "one", 2, options={"backend": backend})
    losses = "SELECT mst_key, training_loss_final, training_metrics_final FROM {}_{}_info ORDER BY 1"
    each, row = (trial.sql(losses.format(name, backend)) for name in ("each", "row"))
    assert None not in each[0] + each[1]
    assert each == [pytest.approx(of_row, rel=1e-5) for of_row in row]


def test_a_run_says_at_its_end_which_configs_are_missing(trial: Trial) -> None:
    register(trial, "fails", "def fails(y_true, y_pred):\n    raise ValueError('of no use')")
    trial.select("with_one", [1], [MINE.replace("my_loss", name) for name in ("mse", "fails")], [FITTED])
    trial.connection.notices.clear()
    run_id = trial.fit("packed", "lacks_one", "with_one", 1, options={"backend": "jax"})
    *_, last = trial.connection.notices
    assert last.startswith("WARNING:  no result for 1 config of 2, which failed: config 2: ")
    assert "of no use" in last and f"FROM cerebro.leaderboard WHERE run_id = {run_id}" in last


def load_pickled(trial: Trial, table: str, name: str) -> None:
    """Load a function of two arrays that dill pickles on the server, as MADlib's users do."""
    if not trial.server_has("dill"):
        pytest.skip("needs dill on the server")
    trial.sql(
        f"CREATE FUNCTION pickled_{name}() RETURNS bytea LANGUAGE plpython3u AS"
        f" $$import dill\ndef {name}(a, b):\n    return a + b\nreturn dill.dumps({name})$$"
    )
    trial.sql(f"SELECT cerebro.load_custom_function('{table}', pickled_{name}(), '{name}', 'a sum')")


def test_a_function_of_ones_own_python_is_pickled_without_ours(trial: Trial) -> None:
    """A function that dill pickles in PL/Python can be loaded and called, and GD stays empty."""
    load_pickled(trial, "sums", "my_sum")
    trial.sql(
        "CREATE FUNCTION number_of_shared() RETURNS integer LANGUAGE plpython3u AS 'return len(GD)';"
        "CREATE FUNCTION sum_of(object bytea) RETURNS integer LANGUAGE plpython3u AS"
        " $$import dill\nreturn dill.loads(object)(2, 3)$$"
    )
    assert trial.sql("SELECT sum_of(object), number_of_shared() FROM sums") == [(5, 0)]


def test_a_pickled_metric_goes_the_way_that_its_name_says(trial: Trial) -> None:
    """MADlib's call does not say whether a function is a loss or a metric, nor which values are better."""
    load_pickled(trial, "metrics", "my_accuracy")
    load_pickled(trial, "metrics", "my_distance")
    rises = dict(trial.sql("SELECT name, higher_is_better FROM cerebro.functions WHERE name LIKE 'my\\_%%'"))
    assert rises["my_accuracy"] is True and rises["my_distance"] is None
