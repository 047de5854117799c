"""The temperature with the least log loss of probabilities equals the result of a minimizer of SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.metrics import log_loss

from cerebro_plpy.predicting.selection import choose_apart
from cerebro_plpy.predicting.tempering import COLDEST, HOTTEST, find_temperature, temper

RANDOM = np.random.default_rng(6)


def answers(classes: int, sureness: float, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, and their true probabilities raised to the power `sureness` and normalized."""
    logits = RANDOM.normal(size=(rows, classes)) * 2
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([RANDOM.choice(classes, p=row) for row in true])
    powers = true**sureness
    return labels, powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("sureness", [0.7, 1.0, 2.5])
def test_it_is_where_the_log_loss_is_least(classes: int, sureness: float) -> None:
    labels, found = answers(classes, sureness)

    def loss(logarithm: float) -> float:
        powers = found ** (1 / np.exp(logarithm))
        return log_loss(labels, powers / powers.sum(axis=1, keepdims=True))

    bounds = np.log([COLDEST, HOTTEST])
    best: Any = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-8})
    ours = find_temperature(found, np.eye(classes)[labels])
    assert ours == pytest.approx(np.exp(best.x), rel=1e-4)
    assert ours == pytest.approx(sureness, rel=0.3)
    assert log_loss(labels, temper(found, ours)) == pytest.approx(best.fun)


def test_answers_that_know_the_contrary_are_not_turned_round() -> None:
    labels, found = answers(2, 2.0)
    wrong = np.eye(2)[1 - labels]
    temperature = find_temperature(found, wrong)
    assert temperature == pytest.approx(HOTTEST, rel=1e-4)
    assert (temper(found, temperature).argmax(axis=1) == found.argmax(axis=1)).all()


def test_answers_that_are_all_right_do_not_become_sure_without_end() -> None:
    found = np.array([[0.9, 0.1], [0.2, 0.8]])
    temperature = find_temperature(found, np.eye(2))
    assert temperature == pytest.approx(COLDEST, rel=1e-4)
    assert temper(found, temperature)[0, 1] == pytest.approx(0.01 / 0.82, rel=1e-3)


@pytest.mark.parametrize("right", [0, 1])
def test_a_probability_of_nothing_has_a_finite_loss(right: int) -> None:
    found, truth = np.array([[1.0, 0.0]] * 3 + [[0.6, 0.4]]), np.eye(2)[[right, 0, 0, 1]]
    temperature = find_temperature(found, truth)
    assert COLDEST <= temperature <= HOTTEST
    tempered = temper(found, temperature)
    assert np.isfinite(tempered).all() and tempered.sum(axis=1) == pytest.approx(1)


def test_of_one_class_it_changes_nothing() -> None:
    sure = np.ones((4, 1))
    assert COLDEST <= find_temperature(sure, sure) <= HOTTEST
    assert (temper(sure, 2.0) == 1).all()
    apart = choose_apart(sure[np.newaxis], sure, True, "logloss", 3)
    assert (apart.tempered == apart.plain).all()


def test_no_row_has_a_part_in_its_own_temperature() -> None:
    """The temperature of each half of the rows is computed from the other half."""
    labels, found = answers(3, 3.0)
    truth = np.eye(3)[labels]
    apart = choose_apart(found[np.newaxis], truth, True, "logloss", 1)
    assert (apart.plain == found).all()
    assert log_loss(labels, apart.tempered) < log_loss(labels, apart.plain)
    assert log_loss(labels, apart.tempered) > log_loss(labels, temper(found, find_temperature(found, truth)))
    by_accuracy = choose_apart(found[np.newaxis], truth, True, "accuracy", 1)
    assert (by_accuracy.tempered == found).all()
