"""NumPy's forward pass gives what the engine gives, and leaves alone what it does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_plpy.engine import plain_graph, runtime
from reference import BACKEND


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    runtime.start(BACKEND, 1, False, None)


def tabular(keras: Any) -> Any:
    layers = keras.layers
    numbers, city, words = layers.Input((7,)), layers.Input((1,)), layers.Input((5,))
    near = layers.Flatten()(layers.Embedding(9, 3)(city))
    told = layers.GlobalAveragePooling1D()(layers.Embedding(11, 4)(words))
    joined = layers.Concatenate()([numbers, near, told])
    wide = layers.Dense(8, activation="gelu")(joined)
    normal = layers.LayerNormalization()(wide)
    dropped = layers.Dropout(0.5)(layers.Dense(8, activation="silu")(normal))
    added = layers.Add()([wide, dropped])
    scaled = layers.Multiply()([layers.BatchNormalization()(added), wide])
    return keras.Model([numbers, city, words], layers.Dense(3, activation="softmax")(scaled))


def sequential(*made: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda keras: keras.Sequential([keras.layers.Input((6,)), *(one(keras.layers) for one in made)])


def dense(**config: Any) -> Callable[[Any], Any]:
    return lambda layers: layers.Dense(4, **config)


KNOWN = {
    **{name: sequential(dense(activation=name)) for name in plain_graph.ACTIVATIONS if name != "swish"},
    "no bias": sequential(dense(use_bias=False)),
    "relu layer": sequential(dense(), lambda layers: layers.ReLU()),
    "activation layer": sequential(dense(), lambda layers: layers.Activation("tanh")),
    "rescaling": sequential(lambda layers: layers.Rescaling(0.5, 1.0), dense()),
    "reshape": sequential(lambda layers: layers.Reshape((2, 3)), dense(), lambda layers: layers.Flatten()),
    "batch normalization": sequential(dense(), lambda layers: layers.BatchNormalization(epsilon=0.1)),
    "without scale": sequential(dense(), lambda layers: layers.BatchNormalization(scale=False, center=False)),
    "noise": sequential(lambda layers: layers.GaussianNoise(0.5), dense()),
    "tabular": tabular,
}
OTHER = {
    "convolution": sequential(lambda layers: layers.Reshape((6, 1)), lambda layers: layers.Conv1D(2, 2)),
    "recurrent": sequential(lambda layers: layers.Reshape((6, 1)), lambda layers: layers.LSTM(2)),
    "leaky": sequential(dense(), lambda layers: layers.ReLU(negative_slope=0.1)),
    "half": sequential(dense(dtype="float16")),
    "a regularizer of its own kind": sequential(dense(activation="hard_silu")),
}


def built(make: Callable[[Any], Any]) -> tuple[Any, list[np.ndarray], list[np.ndarray]]:
    keras, random = runtime.keras(), np.random.default_rng(1)
    model = make(keras)
    for weight in model.weights:
        low = 0.5 if "variance" in weight.path else -1.0
        weight.assign(random.uniform(low, 1.0, weight.shape).astype(np.float32))
    rows = [random.uniform(0, 5, (8, *tensor.shape[1:])).astype(np.float32) for tensor in model.inputs]
    return model, rows, model.get_weights()


@pytest.mark.parametrize("make", KNOWN.values(), ids=KNOWN)
def test_it_gives_what_keras_gives(make: Callable[[Any], Any]) -> None:
    model, rows, weights = built(make)
    expected = runtime.to_numpy(model(rows if len(rows) > 1 else rows[0], training=False))
    found = plain_graph.forward(model.to_json(), weights)
    assert found is not None
    np.testing.assert_allclose(found(rows)[0], expected, atol=1e-5)
    assert found(rows)[0].dtype == np.float32


@pytest.mark.parametrize("make", OTHER.values(), ids=OTHER)
def test_it_leaves_other_nets_to_the_engine(make: Callable[[Any], Any]) -> None:
    model, _, weights = built(make)
    assert plain_graph.forward(model.to_json(), weights) is None
