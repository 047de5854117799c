"""A state over 1 GB, the limit of a field, hops between segments, and a warm start continues from it."""

from __future__ import annotations

import json

import pytest

from fixtures import Sql

pytestmark = pytest.mark.fresh_caller

UNITS = 9500


def _dense(units: int, activation: str) -> dict[str, object]:
    return {
        "module": "keras.layers",
        "class_name": "Dense",
        "config": {"units": units, "activation": activation},
    }


@pytest.mark.slow
def test_a_state_over_one_gigabyte_hops_and_is_taken_up_again(sql: Sql) -> None:
    shape = {
        "module": "keras.layers",
        "class_name": "InputLayer",
        "config": {"batch_shape": [None, 64]},
    }
    layers = [shape, _dense(UNITS, "relu"), _dense(UNITS, "relu"), _dense(2, "softmax")]
    net = {
        "module": "keras",
        "class_name": "Sequential",
        "config": {"name": "big", "layers": layers},
    }
    sql(
        "CREATE TABLE rows AS SELECT array_agg(((g * i) % 7)::real ORDER BY i) AS x, g % 2 AS y"
        " FROM generate_series(1, 40) AS g, generate_series(1, 64) AS i GROUP BY g"
    )
    sql(
        "SELECT cerebro.training_preprocessor_dl('rows', 'packed', 'y', 'x',"
        """ options => '{"segments": 2}')"""
    )
    sql("SELECT cerebro.load_keras_model('nets', %s)", json.dumps(net))
    fit = (
        "SELECT cerebro.madlib_fit('packed', 'big', 'nets', 1,"
        " $$optimizer='Adam(lr=0.001)',loss='categorical_crossentropy'$$, 'batch_size=40', 1,"
        """ warm_start => %s, options => '{"seed": 1, "backend": "jax"}')"""
    )
    sql(fit, False)
    parameters = 64 * UNITS + UNITS + UNITS * UNITS + UNITS + 2 * UNITS + 2
    assert sql("SELECT octet_length(model_weights) FROM big") == [(4 * parameters,)]
    newest = "SELECT state_bytes > 2^30 FROM cerebro.visits WHERE step = 2 AND run_id = "
    assert sql(newest + "(SELECT run_id FROM big_summary)") == [(True,)]
    first = sql("SELECT training_loss_final FROM big_summary")[0][0]
    sql(fit, True)
    assert sql("SELECT training_loss_final < %s FROM big_summary", first) == [(True,)]
