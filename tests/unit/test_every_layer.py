"""Each layer that an architecture may contain computes from its current weights, as in plain Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cerebro_db import models

import every_layer
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture, validate
from cerebro_plpy.engine.models import inference, model
from cerebro_plpy.engine.models.data import ONE_HOT, Block, Dataset, Target
from cerebro_plpy.engine.state import State, from_parts, to_parts, weights
from cerebro_plpy.madlib.params import Call, CompileParams
from cerebro_plpy.threads import Threads
from engines import nothing

pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*destroy the mask information:UserWarning"),
]

PARAMS = CompileParams(
    optimizer=Call("SGD", (("learning_rate", 0.05),)), loss="categorical_crossentropy", metrics=[]
)
# Layers with state that is derived from their weights, and one of each large family.
FEW = "Normalization TimeDistributed Discretization SpectralNormalization BatchNormalization LSTM".split()
ROWS, BATCH = 10, 5
# MADlib's weights are 32-bit floats, which round other types of numbers.
CLOSE: Any = {"rtol": 2e-5, "atol": 2e-6}


def labels() -> np.ndarray:
    return np.eye(every_layer.CLASSES, dtype=np.int16)[np.arange(ROWS) % every_layer.CLASSES]


def flat(net: Any) -> bytes:
    return b"".join(array.astype("<f4").tobytes() for array in net.get_weights())


def hop(state: State) -> State:
    return from_parts(to_parts(state))


def plain(net: Any, x: np.ndarray) -> np.ndarray:
    return net.predict(x, verbose=0)


def assert_predicts(net: Any, described: architecture.DescribedModel, given: bytes, x: np.ndarray) -> None:
    """Assert that a net predicts like plain Keras, by predict_many and by a function bound to its weights."""
    forward = inference.inference(described)
    loaded = forward.load(given)
    expected = plain(net, x)
    (found,) = forward.predict_many(loaded, [x], ROWS, Threads(1, nothing))
    np.testing.assert_allclose(found, expected, **CLOSE)
    np.testing.assert_allclose(forward.bound(loaded)([x])[0], expected, **CLOSE)


def exported(described: architecture.DescribedModel, state: State) -> Any:
    """Build a Keras model from a state, as the client does."""
    params = {
        "optimizer": {"name": "SGD", "arguments": {"learning_rate": 0.05}},
        "loss": PARAMS.loss,
        **dict.fromkeys(("metrics", "loss_weights", "weighted_metrics")),
    }
    rows = [
        {"name": name, "shape": list(array.shape), "dtype": array.dtype.name, "data": array.tobytes()}
        for name, array in zip(state.names, state.arrays, strict=True)
    ]
    return models.build(described.json, params, rows, {})


@pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in every_layer.NETS]
)
def test_a_layer_computes_from_the_weights_of_the_moment(name: str, tmp_path: Any) -> None:
    keras = runtime.keras()
    net, x = every_layer.net(keras, name), every_layer.rows(name)
    described = architecture.describe(net.to_json())
    shared = model.compiled(described.json, PARAMS)
    block = Block(Dataset([x], [Target(labels(), ONE_HOT)]), np.arange(ROWS))

    def visit(state: State) -> State:
        return shared.train(hop(state), [[block]], BATCH, None, nothing, rows=ROWS)[0]

    # Another config trains first, with other weights, by the same compiled functions.
    visit(shared.initial_state(PARAMS, 7, None))
    start = hop(shared.initial_state(PARAMS, 3, flat(net)))
    assert_predicts(net, described, weights(start), x)
    (loss,) = shared.merge([shared.evaluate(start, [block], BATCH, nothing)]).values()
    net.compile("sgd", PARAMS.loss)
    assert loss == pytest.approx(net.evaluate(x, labels(), batch_size=BATCH, verbose=0), rel=1e-5)

    keras.utils.set_random_seed(3)
    alone = keras.models.model_from_json(described.json)
    every_layer.put(alone, net.get_weights())
    alone.compile(keras.optimizers.SGD(0.05), PARAMS.loss)
    alone.fit(x, labels(), batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    trained = hop(visit(start))
    for found, expected in zip(trained.arrays, alone.variables, strict=False):
        np.testing.assert_allclose(found, runtime.to_numpy(expected), **CLOSE)
    assert_predicts(alone, described, weights(trained), x)

    live = exported(described, trained)
    np.testing.assert_allclose(plain(live, x), plain(alone, x), **CLOSE)
    live.save(tmp_path / "net.keras")
    loaded = keras.models.load_model(tmp_path / "net.keras")
    np.testing.assert_allclose(plain(loaded, x), plain(alone, x), **CLOSE)


def test_every_layer_is_tried() -> None:
    """Every accepted layer has a test; layers with two names are the same class and are tested once."""
    layers = runtime.keras().layers
    tried = {getattr(layers, name) for name in every_layer.NETS}
    assert [name for name in sorted(validate.LAYERS) if getattr(layers, name) not in tried] == []
