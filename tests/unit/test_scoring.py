"""Metrics of answers equal those of scikit-learn, and differences between two models are told from chance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn import metrics

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.predicting.examining.scoring import (
    ERRORS,
    OF_CLASSES,
    OF_QUANTITIES,
    blind,
    check_metric,
    check_rows,
    gain,
    jackknife,
    shown,
)

RANDOM = np.random.default_rng(4)


def shares(classes: int, rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, and answers that are better than chance, many of them equal."""
    labels = RANDOM.permutation(np.arange(rows) % classes)
    near = RANDOM.dirichlet(np.ones(classes), rows) + 0.4 * np.eye(classes)[labels]
    rounded = np.round(near, 1) + 0.01
    return labels, rounded / rounded.sum(axis=1, keepdims=True)


def compared(answers: np.ndarray, others: np.ndarray, truth: np.ndarray, metric: str) -> tuple[float, float]:
    return gain(jackknife(answers, truth, metric), jackknife(others, truth, metric))


def area(labels: np.ndarray, answers: np.ndarray) -> float:
    if answers.shape[1] == 2:
        return metrics.roc_auc_score(labels, answers[:, 1])
    return metrics.roc_auc_score(labels, answers, multi_class="ovr")


THEIRS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "logloss": metrics.log_loss,
    "accuracy": lambda y, p: metrics.accuracy_score(y, p.argmax(axis=1)),
    "auc": area,
    "f1": lambda y, p: metrics.f1_score(y, p.argmax(axis=1), average="macro"),
    "balanced_accuracy": lambda y, p: metrics.balanced_accuracy_score(y, p.argmax(axis=1)),
    "rmse": metrics.root_mean_squared_error,
    "mae": metrics.mean_absolute_error,
    "r2": metrics.r2_score,
}


@pytest.mark.parametrize("metric", OF_CLASSES)
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_metrics_of_classes_are_those_of_scikit_learn(metric: str, classes: int) -> None:
    labels, answers = shares(classes)
    ours = shown(metric, ERRORS[metric](answers, np.eye(classes)[labels]))
    assert ours == pytest.approx(THEIRS[metric](labels, answers), abs=1e-12)


@pytest.mark.parametrize("metric", OF_QUANTITIES)
@pytest.mark.parametrize("width", [1, 3])
def test_metrics_of_quantities_are_those_of_scikit_learn(metric: str, width: int) -> None:
    truth = RANDOM.normal(5, 3, (40, width))
    answers = truth + RANDOM.normal(size=truth.shape)
    ours = shown(metric, ERRORS[metric](answers, truth))
    theirs = THEIRS[metric](truth, answers)
    # With several quantities, ours is the root of the mean squared error of all of them together.
    if (metric, width) == ("rmse", 3):
        theirs = metrics.mean_squared_error(truth, answers) ** 0.5
    assert ours == pytest.approx(theirs, abs=1e-12)


def test_a_class_without_rows_does_not_count() -> None:
    truth = np.eye(4)[[0, 1, 0, 1]]
    answers = truth + 0.1
    for metric in ("auc", "f1", "balanced_accuracy"):
        assert shown(metric, ERRORS[metric](answers, truth)) == 1
    # One that is answered wrongly does for F1: 0 and 1 are right in all of their rows but one.
    answers[3] = np.eye(4)[3]
    assert shown("f1", ERRORS["f1"](answers, truth)) == pytest.approx((1 + 2 / 3 + 0) / 3)


def test_rows_of_one_class_cannot_be_ranked() -> None:
    truth = np.eye(2)[[1, 1, 1]]
    assert ERRORS["auc"](truth, truth) == 0.5
    with pytest.raises(CerebroError, match="all rows of t have the same class"):
        check_rows("auc", truth.sum(axis=0), "t")
    check_rows("f1", truth.sum(axis=0), "t")


def test_a_quantity_that_is_the_same_in_all_rows_is_right_or_wrong() -> None:
    same = np.full((5, 1), 3.0)
    assert ERRORS["r2"](same, same) == 0 and ERRORS["r2"](same + 1, same) == 1


def test_one_answer_for_all_rows() -> None:
    labels, _ = shares(3)
    truth = np.eye(3)[labels]
    assert shown("auc", ERRORS["auc"](blind(truth, "auc"), truth)) == 0.5
    numbers = np.array([[1.0], [2.0], [9.0]])
    assert ERRORS["r2"](blind(numbers, "r2"), numbers) == pytest.approx(1)
    assert ERRORS["mae"](blind(numbers, "mae"), numbers) == pytest.approx(8 / 3)


@pytest.mark.parametrize("metric", [one for one in OF_CLASSES if one != "f1"])
def test_what_answers_know_is_more_than_chance(metric: str) -> None:
    labels, answers = shares(3, 300)
    truth = np.eye(3)[labels]
    won, chance = compared(answers, blind(truth, metric), truth, metric)
    assert won > chance > 0
    won, chance = compared(RANDOM.permutation(answers), blind(truth, metric), truth, metric)
    assert won <= chance
    assert compared(answers, answers, truth, metric) == (0, 0)


@pytest.mark.parametrize("metric", [*OF_CLASSES, *OF_QUANTITIES])
def test_an_error_without_a_part_is_that_of_the_other_rows(metric: str) -> None:
    labels, answers = shares(3, 67)
    truth = np.eye(3)[labels]
    if metric in OF_QUANTITIES:
        truth, answers = labels[:, np.newaxis].astype(float), answers[:, :1]
    found = jackknife(answers, truth, metric)
    part = np.arange(67) % 20
    expected = [ERRORS[metric](answers[part != one], truth[part != one]) for one in range(20)]
    assert found.without == pytest.approx(expected, abs=1e-12)
    assert found.whole == pytest.approx(ERRORS[metric](answers, truth), abs=1e-12)


def test_answers_by_chance_have_a_better_f1_than_one_answer() -> None:
    """Random answers have a better F1 than one constant answer, so the constant is no baseline for F1."""
    labels, answers = shares(3, 300)
    truth = np.eye(3)[labels]
    won, chance = compared(RANDOM.permutation(answers), blind(truth, "f1"), truth, "f1")
    assert won > chance


def test_one_row_shows_nothing() -> None:
    won, chance = compared(np.array([[2.0]]), np.array([[9.0]]), np.array([[2.0]]), "mae")
    assert won == chance == 7


def test_a_metric_of_something_else_is_refused() -> None:
    with pytest.raises(CerebroError, match="a quantity, for which no metric is called 'auc'") as caught:
        check_metric("auc", is_classes=False)
    assert caught.value.detail == "Possible are: mae, r2, rmse."
