"""A net with an adapted Normalization layer: its statistics are stored and loaded as weights are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import nets
from predicting import outputs
from trial import ADAM, Trial, blobs, rows_of

ROWS, SHIFT, SCALE = 400, 40.0, 25.0
NET = nets.sequential(
    [nets.FEATURES],
    nets.layer("Normalization"),
    nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
)


@pytest.fixture(scope="module")
def features() -> np.ndarray:
    """Features whose scale and offset are too large for a net without normalization."""
    return blobs(ROWS)[0] * np.float32(SCALE) + np.float32(SHIFT)


@pytest.fixture(scope="module")
def weights(features: np.ndarray) -> bytes:
    """The net's weights: statistics of the features, as Keras' `adapt` finds them, and a random kernel."""
    kernel = np.random.default_rng(5).normal(size=(nets.FEATURES, nets.CLASSES))
    found = (features.mean(axis=0), features.var(axis=0), 0.0, kernel, np.zeros(nets.CLASSES))
    return b"".join(np.asarray(array, "<f4").tobytes() for array in found)


@pytest.fixture(scope="module", autouse=True)
def rows(trial: Trial, features: np.ndarray) -> None:
    numbered = [(n, x, y) for n, (x, y) in enumerate(rows_of(features, blobs(ROWS)[1]), 1)]
    trial.table("rows", "id bigint, x real[], y integer", numbered)
    trial.pack("rows", "packed")


def likely(weights: bytes, features: np.ndarray) -> np.ndarray:
    """Return the most probable class of each row, and its probability, as Keras computes them."""
    return _told(outputs(NET, weights, features)[0])


def _told(found: np.ndarray) -> np.ndarray:
    return np.column_stack([found.argmax(axis=1), found.max(axis=1)])


def predicted(trial: Trial, call: str, *values: Any) -> np.ndarray:
    trial.sql(f"DROP TABLE IF EXISTS out; SELECT cerebro.{call}", *values)
    return np.array(trial.sql("SELECT class_value::integer, prob FROM out ORDER BY id"), float)


def test_own_weights_predict_what_they_do_in_keras(
    trial: Trial, weights: bytes, features: np.ndarray
) -> None:
    model_id = trial.model(NET, "own", weights)
    found = predicted(trial, "madlib_keras_predict_byom('own', %s, 'rows', 'id', 'x', 'out', 1)", model_id)
    np.testing.assert_allclose(found, likely(weights, features), rtol=1e-5)
    # One compiled function predicts with all weights of an architecture.
    doubled = np.frombuffer(weights, "<f4").copy()
    doubled[: nets.FEATURES] *= 2
    model_id = trial.model(NET, "own", doubled.tobytes())
    found = predicted(trial, "madlib_keras_predict_byom('own', %s, 'rows', 'id', 'x', 'out', 1)", model_id)
    np.testing.assert_allclose(found, likely(doubled.tobytes(), features), rtol=1e-5)


def test_training_goes_on_from_the_statistics(
    trial: Trial, weights: bytes, features: np.ndarray, greenplum: bool
) -> None:
    trial.model(NET, "nets", weights)
    trial.select("chosen", [1], [ADAM], ["batch_size=20,epochs=1"], arch="nets")
    trial.fit("packed", "trained", "chosen", 3)
    after = trial.weights("trained")[1]
    statistics = 2 * nets.FEATURES * 4
    assert after[:statistics] == weights[:statistics] and after != weights
    found = predicted(trial, "madlib_predict('trained', 'rows', 'id', 'x', 'out', 1, false, 1)")
    expected = likely(after, features)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    accuracy = trial.value("SELECT training_metrics_final FROM trained_info")
    assert accuracy == pytest.approx(np.mean(expected[:, 0] == blobs(ROWS)[1]), abs=1e-6)
    if not greenplum:
        query = "SELECT (cerebro.predict('trained', 1, x)).probability FROM rows ORDER BY id LIMIT 5"
        np.testing.assert_allclose([p for (p,) in trial.sql(query)], expected[:5, 1], rtol=1e-5)


def test_who_loads_no_statistics_is_told(trial: Trial, weights: bytes) -> None:
    trial.notices()
    trial.model(NET, "bare")
    assert "let all values pass as they are: normalization_1. " in trial.notices()
    trial.model(NET, "bare", weights)
    fixed = json.loads(NET)
    fixed["config"]["layers"][1]["config"] |= {"mean": 1.0, "variance": 2.0}
    trial.model(json.dumps(fixed), "bare")
    assert "WARNING" not in trial.notices()
