"""The sizes of gradients and weights and the dead units that inspecting a net finds, on each engine."""

from __future__ import annotations

import numpy as np
import pytest

import nets
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.inside import scores
from cerebro_plpy.engine.inside.inspecting import LayerFacts, inspect
from cerebro_plpy.engine.models.inference import inference

pytestmark = pytest.mark.usefixtures("engine")

RANDOM = np.random.default_rng(4)
ROWS, FEATURES, UNITS, CLASSES = 20, 5, 8, 3


def facts_of(text: str, weights: list[np.ndarray], inputs: np.ndarray, given: np.ndarray) -> list[LayerFacts]:
    net = inference(architecture.describe(text))
    loaded = net.load(b"".join(one.astype("<f4").tobytes() for one in weights))
    loss = scores.make_log_loss(scores.odds_of_probabilities)
    half = len(inputs) // 2
    batches = [([inputs[:half]], given[:half]), ([inputs[half:]], given[half:])]
    return inspect(net, loaded, loss, batches)


def quadratic_mean(*arrays: np.ndarray) -> float:
    return float(np.sqrt(np.square(np.concatenate([one.ravel() for one in arrays])).mean()))


def test_gradients_weights_and_dead_units() -> None:
    text = nets.sequential(
        [FEATURES],
        nets.layer("Dense", units=UNITS, activation="relu"),
        nets.layer("Dense", units=CLASSES, activation="softmax"),
    )
    shapes = (FEATURES, UNITS), (UNITS,), (UNITS, CLASSES), (CLASSES,)
    first, bias, second, last = (RANDOM.normal(size=shape).astype(np.float32) for shape in shapes)
    bias[:2] = -100
    x = RANDOM.normal(size=(ROWS, FEATURES)).astype(np.float32)
    given = np.eye(CLASSES, dtype=np.float32)[np.arange(ROWS) % CLASSES]
    inside = x @ first + bias
    hidden = np.maximum(inside, 0)
    raised = np.exp(hidden @ second + last)
    off = (raised / raised.sum(axis=1, keepdims=True) - given) / ROWS
    back = (inside > 0) * (off @ second.T)
    one, two = facts_of(text, [first, bias, second, last], x, given)
    assert one.gradient == pytest.approx(quadratic_mean(x.T @ back, back.sum(axis=0)), rel=1e-4)
    assert two.gradient == pytest.approx(quadratic_mean(hidden.T @ off, off.sum(axis=0)), rel=1e-4)
    assert one.weights == pytest.approx(quadratic_mean(first, bias), rel=1e-6)
    assert one.dead == (hidden == 0).all(axis=0).mean() >= 0.25
    assert (one.units, one.saturated, two.dead, two.is_finite) == (UNITS, None, None, True)


def test_codes_and_weights_that_are_no_numbers() -> None:
    text = nets.sequential(
        [2],
        nets.layer("Embedding", input_dim=4, output_dim=3),
        nets.layer("Flatten"),
        nets.layer("Dense", units=CLASSES, activation="softmax"),
    )
    vectors, kernel = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(6, CLASSES))
    codes = RANDOM.integers(0, 3, (ROWS, 2)).astype(np.float32)
    given = np.eye(CLASSES, dtype=np.float32)[np.arange(ROWS) % CLASSES]
    embedding, dense = facts_of(text, [vectors, kernel, np.zeros(CLASSES)], codes, given)
    assert (embedding.kind, embedding.is_finite) == ("Embedding", True)
    assert embedding.gradient and dense.gradient
    kernel[0, 0] = np.nan
    assert [one.is_finite for one in facts_of(text, [vectors, kernel, np.zeros(CLASSES)], codes, given)] == [
        True,
        False,
    ]


def test_a_layer_that_returns_its_states_as_well() -> None:
    layers = runtime.keras().layers
    given = layers.Input((4, 2))
    values, *_ = layers.LSTM(3, return_state=True, name="memory")(given)
    net = runtime.keras().Model(given, layers.Dense(CLASSES, activation="softmax")(values))
    weights = [np.asarray(one) for one in net.get_weights()]
    classes = np.eye(CLASSES, dtype=np.float32)[np.arange(ROWS) % CLASSES]
    x = RANDOM.normal(size=(ROWS, 4, 2)).astype(np.float32)
    memory, _ = facts_of(net.to_json(), weights, x, classes)
    assert (memory.name, memory.units, memory.saturated) == ("memory", 3, 0.0)
