"""The losses that cerebro adds to those of Keras are equal to the same losses in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cerebro_plpy.engine.checks import calls
from cerebro_plpy.engine.checks import check as fits
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.metrics import direction
from cerebro_plpy.madlib.params import CompileParams, parse_compile

pytestmark = pytest.mark.usefixtures("engine")

RANDOM = np.random.default_rng(3)
ROWS, CLASSES = 50, 3
VALUES = RANDOM.normal(size=(ROWS, 2)).astype(np.float32)
GUESSES = RANDOM.normal(size=(ROWS, 2)).astype(np.float32)
LABELS = np.eye(CLASSES, dtype=np.float32)[RANDOM.integers(0, CLASSES, ROWS)]
SHARES = RANDOM.dirichlet(np.ones(CLASSES), ROWS).astype(np.float32)


def read(loss: str, **more: str) -> CompileParams:
    others = "".join(f",{key}={value}" for key, value in more.items())
    return parse_compile(f"optimizer='SGD()',loss={loss}{others}")


def pinball(tau: float) -> float:
    missing = VALUES - GUESSES
    return float(np.where(missing > 0, tau * missing, (tau - 1) * missing).mean())


def logits(shares: np.ndarray) -> np.ndarray:
    return np.log(shares / (1 - shares))


def binary(weight: float) -> float:
    positive = LABELS * weight * np.log(SHARES)
    return float(-(positive + (1 - LABELS) * np.log(1 - SHARES)).mean())


def categorical(weights: list[float]) -> float:
    return float(-(np.log((SHARES * LABELS).sum(1)) * (LABELS @ np.array(weights))).mean())


@pytest.mark.parametrize(("text", "truth", "guess", "expected"), [
    ("Quantile(tau=0.9)", VALUES, GUESSES, pinball(0.9)),
    ("'Quantile(tau=0.1)'", VALUES, GUESSES, pinball(0.1)),
    ("'quantile'", VALUES, GUESSES, pinball(0.5)),
    ("pinball(tau=0.25)", VALUES, GUESSES, pinball(0.25)),
    ("WeightedBinaryCrossentropy(positive_weight=5)", LABELS, SHARES, binary(5)),
    ("WeightedBinaryCrossentropy(positive_weight=5,from_logits=True)", LABELS, logits(SHARES), binary(5)),
    ("WeightedCategoricalCrossentropy(class_weights=[1,2,0.5])", LABELS, SHARES, categorical([1, 2, 0.5])),
    ("weighted_categorical_crossentropy(class_weights=[1,2,0.5],from_logits=True)", LABELS, np.log(SHARES),
     categorical([1, 2, 0.5])),
])  # fmt: skip
def test_a_loss_is_that_of_numpy(text: str, truth: Any, guess: Any, expected: float) -> None:
    params = read(text, metrics=f"[{text}]")
    loss = calls.losses(params.loss)
    assert float(loss(truth, guess)) == pytest.approx(expected, rel=1e-4)
    (metric,) = calls.metrics(params.metrics)
    metric.update_state(truth[:20], guess[:20])
    metric.update_state(truth[20:], guess[20:])
    assert float(metric.result()) == pytest.approx(expected, rel=1e-4)
    assert direction(params) == "min"


@pytest.mark.parametrize("text", [
    "Quantile(tau=0)", "Quantile(tau=1)", "Quantile(tau='x')", "Quantile(alpha=0.5)",
    "WeightedBinaryCrossentropy()", "'weighted_categorical_crossentropy'",
    "WeightedCategoricalCrossentropy(class_weights=[-1,1])", "quantil",
])  # fmt: skip
def test_arguments_are_checked(text: str) -> None:
    with pytest.raises(CerebroError):
        read(text)


def test_there_is_one_weight_for_each_class() -> None:
    params = read("WeightedCategoricalCrossentropy(class_weights=[1,2])")
    with pytest.raises(CerebroError, match="has 2 class_weights"):
        fits._check_class_weights("output", params.loss, 3)


def test_top_k_accuracy_goes_by_the_name_that_madlib_gives_it() -> None:
    params = read("'categorical_crossentropy'", metrics="['top_2_accuracy']")
    (metric,) = calls.metrics(params.metrics)
    assert (metric.name, type(metric).__name__) == ("top_2_accuracy", "TopKCategoricalAccuracy")
    metric.update_state(LABELS, SHARES)
    best = np.argsort(SHARES, axis=1)[:, -2:]
    assert float(metric.result()) == pytest.approx((best == LABELS.argmax(1)[:, None]).any(1).mean())
    with pytest.raises(CerebroError, match="unknown metric"):
        read("'mse'", metrics="['top_0_accuracy']")
