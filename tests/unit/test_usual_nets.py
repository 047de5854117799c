"""Nets of usual layers are checked without an engine, and no net passes that Keras would refuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks.architecture import describe
from cerebro_plpy.engine.plain.forward import count_weights
from cerebro_plpy.engine.plain.usual import is_usual
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.nets.fitting import Moments, NetOutput, NetRows
from cerebro_plpy.nets.points import nets
from cerebro_plpy.predicting.models import fits_dense

pytestmark = pytest.mark.usefixtures("engine")
LIMIT = 10_000
CLASSES = NetRows([(4, 2)], [NetOutput("kind", (3,), True)], None)
QUANTITY = NetRows([(4,)], [NetOutput("price", (), False, Moments([1.0], [2.0]))], None)
# What may stand in a wrong place of a net's JSON.
WRONG: list[Any] = [None, -1, True, 1.5, "a/b", {}]


def chain(keras: Any) -> Any:
    return keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(5, "relu", kernel_initializer="he_normal")], name="chain"
    )


def graph(keras: Any) -> Any:
    layers = keras.layers
    numbers, kind = keras.Input((3,), name="numbers"), keras.Input((1,), name="kind")
    embedded = layers.Flatten()(layers.Embedding(7, 2)(kind))
    x = layers.Dense(4, use_bias=False)(layers.Concatenate()([numbers, embedded]))
    x = layers.Dropout(0.2, seed=3)(layers.Activation("relu")(layers.BatchNormalization()(x)))
    return keras.Model([numbers, kind], [layers.Dense(3, "softmax")(x), layers.Rescaling(2.0, 1.0)(x)])


def to_text(make: Callable[[Any], Any]) -> str:
    return make(runtime.keras()).to_json()


def put_wrong_values(value: Any) -> Iterator[str]:
    """Yield a net's JSON again and again, each time with a wrong value in a place, or without the place."""
    for holder, key in places(value):
        right = holder[key]
        for wrong in WRONG:
            holder[key] = wrong
            yield json.dumps(value)
        if isinstance(holder, dict):
            del holder[key]
            yield json.dumps(value)
        holder[key] = right


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return each place within a net's JSON: what holds it, and its key."""
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return []
    keys = sorted(value) if isinstance(value, dict) else range(len(value))
    return [place for key in keys for place in ((value, key), *places(value[key]))]


@pytest.mark.parametrize("make", [chain, graph])
def test_keras_own_json_of_usual_layers_needs_no_engine(make: Callable[[Any], Any]) -> None:
    text = to_text(make)
    weights = 4 * describe(text).parameters
    assert is_usual(text, None, LIMIT)
    assert is_usual(text, weights, LIMIT)
    assert not is_usual(text, weights + 4, LIMIT)
    assert is_usual(text, None, weights // 4)
    assert not is_usual(text, None, weights // 4 - 1)


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("Flatten(), Dense(16, 'relu'), Dropout(0.2)", CLASSES),
        ("Dense(16, activation='relu'), BatchNormalization(), Dense(8)", QUANTITY),
        ("Rescaling(0.5), Rescaling(scale=2.0, offset=1.0), Dense(3)", QUANTITY),
    ],
)
def test_lines_of_usual_layers_need_no_engine(line: str, rows: NetRows) -> None:
    ((_, text),) = nets(line, None, rows)
    assert is_usual(text, 4 * describe(text).parameters, LIMIT)


@pytest.mark.parametrize(
    "line",
    [
        "Dense(0)",
        "Dense(-3)",
        "Dense(2.5)",
        "Dropout(1.5)",
        "Dense(3, 'rel')",
    ],
)
def test_what_keras_refuses_is_left_to_keras(line: str) -> None:
    ((_, text),) = nets(line, None, QUANTITY)
    with pytest.raises(CerebroError):
        describe(text)
    assert not is_usual(text, None, LIMIT)


@pytest.mark.parametrize(
    "layer", ["Conv1D(3, 2)", "LSTM(3)", "Normalization()", "Dense(3, kernel_regularizer='l2')"]
)
def test_other_layers_are_left_to_keras(layer: str) -> None:
    ((_, text),) = nets(layer, None, CLASSES)
    assert not is_usual(text, None, LIMIT)


@pytest.mark.parametrize("make", [chain, graph])
def test_no_net_passes_that_keras_would_refuse(make: Callable[[Any], Any]) -> None:
    """A net that passes with a wrong value somewhere is one that Keras takes, with as many weights."""
    tried = set(put_wrong_values(json.loads(to_text(make))))
    passing = [text for text in tried if is_usual(text, None, LIMIT)]
    assert len(tried) > 200 and 10 < len(passing) < len(tried) / 4
    for text in passing:
        assert is_usual(text, 4 * describe(text).parameters, LIMIT)


VALUED = replace(QUANTITY, values=lambda _: np.random.default_rng(1).normal(size=(50, 4)))


@pytest.mark.parametrize(
    ("point", "given"),
    [
        ("tabular", '{"depth": [1, 3], "width": [1, 40], "dropout": 0.0}'),
        ("tabm", '{"members": [2, 5], "pieces": [2, 9], "embedding": [1, 4], "depth": 1, "width": 8}'),
        ("realmlp", '{"frequencies": [1, 6], "embedding": [1, 3], "spread": 0.0, "width": 9}'),
        ("graph", '{"depth": [1, 2], "width": [1, 5]}'),
    ],
)
def test_starting_points_need_no_engine(point: str, given: str) -> None:
    """Keras takes each of them, and counts as many weights as NumPy."""
    counted = set[int]()
    for _, text in nets(point, given, VALUED):
        weights = describe(text).parameters
        assert count_weights(text, weights) == weights
        assert fits_dense(text, weights)
        assert not fits_dense(text, weights - 1)
        counted.add(weights)
    assert len(counted) >= 4


def test_a_layer_that_makes_too_much_of_a_row_is_left_to_keras() -> None:
    """The members of this net make 18,000 numbers of a row, with fewer weights."""
    ((_, text),) = nets("tabm", '{"members": 200, "width": 90, "depth": 1}', QUANTITY)
    weights = describe(text).parameters
    assert count_weights(text, max(weights, 18_000)) == weights
    assert count_weights(text, 17_999) is None


def test_a_large_starting_point_is_left_to_keras() -> None:
    ((_, text),) = nets("tabular", '{"width": 65536, "depth": 64}', QUANTITY)
    assert not fits_dense(text, 10**12)
