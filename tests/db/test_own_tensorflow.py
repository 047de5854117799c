"""Users' own functions can use TensorFlow in sessions that also call functions of the extension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import psycopg2
import pytest

import nets
from fixtures import Connection, execute
from trial import Trial, blobs, rows_of

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
FEATURES, UNITS = 6, 8
LIGHT = "SELECT cerebro.version()"
PREDICT = "SELECT cerebro.madlib_keras_predict_byom('arch', 1, 'rows', 'id', 'x', 'out', 'prob')"
# The server compiles this one, with an LLVM of its own.
COMPILED = (
    "SET jit = on; SET jit_above_cost = 0; SELECT count(*) FROM generate_series(1, 1000) AS i WHERE i % 3 = 1"
)
OWN = "SELECT own()"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(60, features=FEATURES)
    trial.table("plain", "x real[], y integer", rows_of(x, y))
    trial.sql("CREATE TABLE rows AS SELECT row_number() OVER ()::integer AS id, x, y FROM plain")
    weights = (FEATURES + 1) * UNITS + (UNITS + 1) * nets.CLASSES
    trial.model(nets.mlp(FEATURES, UNITS), weights=bytes(4 * weights))
    trial.sql(
        """CREATE FUNCTION own() RETURNS float8 LANGUAGE plpython3u AS $$
           import tensorflow
           net = tensorflow.keras.Sequential([tensorflow.keras.layers.Dense(1, kernel_initializer="ones")])
           return float(net(tensorflow.constant([[1.0, 2.0]])).numpy().sum())
           $$"""
    )


@pytest.fixture
def fresh(trial: Trial) -> Iterator[Connection]:
    with closing(psycopg2.connect(trial.connection.dsn)) as connection:
        connection.autocommit = True
        execute(connection, "DROP TABLE IF EXISTS out")
        yield connection


@pytest.mark.parametrize(
    "statements",
    [
        (LIGHT, OWN, PREDICT, OWN),
        (PREDICT, OWN),
        (LIGHT, COMPILED, OWN, PREDICT),
        (LIGHT, OWN, COMPILED, PREDICT),
    ],
    ids=["before", "after", "after_jit", "before_jit"],
)
def test_it_works_before_and_after_ours(fresh: Connection, statements: Sequence[str]) -> None:
    for statement in statements:
        rows = execute(fresh, statement)
        if statement == OWN:
            assert rows == [(3.0,)]
    assert execute(fresh, "SELECT count(DISTINCT id) FROM out") == [(60,)]
