"""Choosing models for an ensemble, against a search that is written out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, mean_squared_error

from cerebro_plpy.predicting.selection import ERRORS, choose, shown

RANDOM = np.random.default_rng(4)
LABELS = RANDOM.integers(0, 3, 60)
TRUTH = np.eye(3)[LABELS]
SHARES = np.stack(
    [RANDOM.dirichlet(np.ones(3), 60) * 0.6 + TRUTH * share for share in (0.1, 0.3, 0.2, 0.25, 0.0)]
)
SHARES = SHARES / SHARES.sum(axis=2, keepdims=True)
NUMBERS = RANDOM.normal(size=(60, 1))
GUESSES = np.stack([NUMBERS + RANDOM.normal(size=(60, 1)) * spread for spread in (1, 0.5, 0.6, 2)])


def test_errors_are_those_of_scikit_learn() -> None:
    one = SHARES[0]
    assert ERRORS["logloss"](one, TRUTH) == pytest.approx(log_loss(LABELS, one))
    wrong = ERRORS["accuracy"](one, TRUTH)
    assert shown("accuracy", wrong) == pytest.approx(accuracy_score(LABELS, one.argmax(axis=1)))
    assert ERRORS["rmse"](GUESSES[0], NUMBERS) ** 2 == pytest.approx(mean_squared_error(NUMBERS, GUESSES[0]))
    assert ERRORS["mae"](GUESSES[0], NUMBERS) == pytest.approx(mean_absolute_error(NUMBERS, GUESSES[0]))


@pytest.mark.parametrize(
    ("answers", "truth", "metric"),
    [(SHARES, TRUTH, "logloss"), (GUESSES, NUMBERS, "rmse"), (GUESSES, NUMBERS, "mae")],
)
@pytest.mark.parametrize("size", [1, 2, 7, 25])
def test_each_round_takes_what_helps_most(
    answers: np.ndarray, truth: np.ndarray, metric: str, size: int
) -> None:
    chosen: list[int] = []
    errors: list[float] = []
    for _ in range(size):
        means = [answers[[*chosen, place]].mean(axis=0) for place in range(len(answers))]
        tried = [ERRORS[metric](mean, truth) for mean in means]
        chosen.append(int(np.argmin(tried)))
        errors.append(min(tried))
    kept = chosen[: int(np.argmin(errors)) + 1]
    counts, error = choose(answers, truth, metric, size)
    assert counts == {place: kept.count(place) for place in sorted(set(kept))}
    assert error == pytest.approx(min(errors))
    assert error <= min(ERRORS[metric](one, truth) for one in answers) + 1e-12


def test_of_equals_one_that_is_in_goes_first() -> None:
    same = np.stack([GUESSES[1]] * 3)
    assert choose(same, NUMBERS, "rmse", 5) == ({0: 1}, ERRORS["rmse"](GUESSES[1], NUMBERS))


def test_a_probability_of_nothing_is_no_infinite_loss() -> None:
    sure = np.eye(3)[(LABELS + 1) % 3][np.newaxis]
    counts, error = choose(sure, TRUTH, "logloss", 3)
    assert counts == {0: 1} and np.isfinite(error)
