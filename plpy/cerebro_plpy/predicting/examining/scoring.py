"""Metrics: how far answers are from the true values, as an error. A smaller error is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.madlib.nearest import unknown
from cerebro_plpy.madlib.params import WEIGHTED
from cerebro_plpy.predicting import choices

LOGLOSS, ACCURACY, AUC, F1, BALANCED = "logloss", "accuracy", "auc", "f1", "balanced_accuracy"
RMSE, MAE, R2 = "rmse", "mae", "r2"
OF_CLASSES, OF_QUANTITIES = (LOGLOSS, ACCURACY, AUC, F1, BALANCED), (RMSE, MAE, R2)
# Metrics that are better when they are greater; their error is 1 less the metric.
_SHARES = frozenset({ACCURACY, AUC, F1, BALANCED, R2})
# A probability of 0 would make the loss infinite, for one row among all.
LEAST = 1e-15
# The number of parts of the rows that a jackknife leaves out in turn.
_PARTS = 20
# By this chance what is true lies below an interval, and by the same above it. Of 40 tables whose parts are
# all alike, a part is said to be worse in one, however many parts there are.
CHANCE = 0.025
# A difference of this many of its deviations is more than chance.
SURE = 2.0


def _each_logloss(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    shares = np.clip(answers / answers.sum(axis=1, keepdims=True), LEAST, 1)
    return -np.log((shares * truth).sum(axis=1))


def _each_wrong(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return (choices.find_likeliest(answers) != truth.argmax(axis=1)).astype(np.float64)


def _each_square(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return np.square(answers - truth).mean(axis=1)


def _each_absolute(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return np.abs(answers - truth).mean(axis=1)


def _logloss(answers: np.ndarray, truth: np.ndarray) -> float:
    return float(_each_logloss(answers, truth).mean())


def _wrong(answers: np.ndarray, truth: np.ndarray) -> float:
    return float(_each_wrong(answers, truth).mean())


def _misranked(answers: np.ndarray, truth: np.ndarray) -> float:
    """Return 1 minus AUC: the mean over the classes that some rows have and others do not have.

    If all rows have one class, nothing can be ranked, and the result is 0.5.
    """
    counts = truth.sum(axis=0)
    both = np.flatnonzero((counts > 0) & (counts < len(truth)))
    # With two classes, the ranks by one are those by the other, reversed.
    places = both[1:] if len(both) == 2 else both
    found = [_area(answers[:, place], truth[:, place] > 0) for place in places]
    return 1 - float(np.mean(found)) if found else 0.5


def _area(values: np.ndarray, inside: np.ndarray) -> float:
    """Return the share of pairs (a row in a class, a row outside) in which the first has the greater value.

    Pairs with equal values count half. `inside` marks the rows in the class.
    """
    ranked, own = np.sort(values), values[inside]
    # Equal values share the mean of their ranks.
    ranks = (np.searchsorted(ranked, own, "left") + np.searchsorted(ranked, own, "right") + 1) / 2
    first, second = len(own), len(values) - len(own)
    return float((ranks.sum() - first * (first + 1) / 2) / (first * second))


def _confused(answers: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three counts for each class.

    They count the rows of the class that are predicted as it, all rows that are predicted as it, and all rows
    of the class.
    """
    said, true = choices.find_likeliest(answers), truth.argmax(axis=1)
    width = truth.shape[1]
    right = np.bincount(true[said == true], minlength=width)
    return right, np.bincount(said, minlength=width), np.bincount(true, minlength=width)


def _unlike(answers: np.ndarray, truth: np.ndarray) -> float:
    """Return 1 minus F1, the mean over the classes that any row has or is predicted to have."""
    right, said, true = _confused(answers, truth)
    met = said + true > 0
    return 1 - float((2 * right[met] / (said + true)[met]).mean())


def _overlooked(answers: np.ndarray, truth: np.ndarray) -> float:
    """Return 1 minus balanced accuracy: the mean over the classes of the share of rows predicted rightly."""
    right, _, true = _confused(answers, truth)
    return 1 - float((right[true > 0] / true[true > 0]).mean())


def _rmse(answers: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(_each_square(answers, truth).mean()))


def _mae(answers: np.ndarray, truth: np.ndarray) -> float:
    return float(_each_absolute(answers, truth).mean())


def _unexplained(answers: np.ndarray, truth: np.ndarray) -> float:
    """Return the squared error as a share of the variance (1 minus R2), the mean over the quantities."""
    errors = np.square(answers - truth).mean(axis=0)
    variance = truth.var(axis=0)
    varied = variance > 0
    # A quantity that is the same in all rows has no share: its answers are right or wrong.
    shares = np.where(varied, errors / np.where(varied, variance, 1), errors > 0)
    return float(shares.mean())


# The function that computes the error of each row, for metrics that are a mean over the rows.
EACH: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    LOGLOSS: _each_logloss,
    ACCURACY: _each_wrong,
    RMSE: _each_square,
    MAE: _each_absolute,
}
# The error of a row whose class a model cannot answer: the model gives it the least probability.
WORST: Mapping[str, float] = {LOGLOSS: -math.log(LEAST), ACCURACY: 1.0}
# The function that computes the error of all rows, for each metric.
ERRORS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    LOGLOSS: _logloss,
    ACCURACY: _wrong,
    AUC: _misranked,
    F1: _unlike,
    BALANCED: _overlooked,
    RMSE: _rmse,
    MAE: _mae,
    R2: _unexplained,
}


def find_deciding(options: Mapping[str, Any]) -> str | None:
    """Return the metric by which a call of cerebro.train with these options compares models.

    Where rare classes count as much as others, they also do so when models are compared. Return None if the
    call names no metric.
    """
    return options.get("metric") or (BALANCED if WEIGHTED in options else None)


def of_task(is_classes: bool) -> tuple[str, ...]:
    return OF_CLASSES if is_classes else OF_QUANTITIES


def of_rows(is_classes: bool) -> list[str]:
    """Return the metrics that are a mean over the rows: of classes if `is_classes`, else of quantities."""
    return [metric for metric in of_task(is_classes) if metric in EACH]


def of_all_rows(is_classes: bool) -> list[str]:
    """Return the metrics that are no mean over the rows: of classes if `is_classes`, else of quantities."""
    return [metric for metric in of_task(is_classes) if metric not in EACH]


def check_metric(given: str | None, is_classes: bool) -> str:
    """Return the given metric, or the usual metric if it is None.

    Raise an error if it is not a metric of what the model predicts.
    """
    known = of_task(is_classes)
    if given is None:
        return known[0]
    if given not in known:
        what = "classes" if is_classes else "a quantity"
        problem = f"the model predicts {what}, for which no metric is called {given[:60]!r}"
        raise unknown(problem, given, known)
    return given


def can_measure(metric: str | None, counts: Iterable[float]) -> bool:
    """Return whether the metric can be measured on rows.

    `counts` has the number of rows of each class: AUC needs rows of two classes.
    """
    return metric != AUC or sum(count > 0 for count in counts) > 1


def check_rows(metric: str | None, counts: Iterable[float], table: str) -> None:
    """Raise an error if the metric cannot be measured on the rows of a table.

    `counts` has the number of rows of each class.
    """
    if not can_measure(metric, counts):
        raise CerebroError(
            f"all rows of {table} have the same class, and {AUC} compares rows of several",
            hint=f"Name other rows, or another metric, such as {LOGLOSS}.",
            sqlstate=WRONG_STATE,
        )


def error_of(metric: str, mean: float) -> float:
    """Return the error by a metric, given the mean of the rows' errors."""
    return float(np.sqrt(max(mean, 0.0))) if metric == RMSE else float(mean)


def shown(metric: str, error: float) -> float:
    """Return the value of the metric for an error, for example the accuracy 0.9 for the error 0.1."""
    return 1 - error if metric in _SHARES else error


def blind(truth: np.ndarray, metric: str) -> np.ndarray:
    """Return the answer that is best by the metric if all rows get the same one, repeated for each row.

    It is the share of each class, or the mean or median of the quantity.
    """
    middle = np.median(truth, axis=0) if metric == MAE else truth.mean(axis=0)
    return np.broadcast_to(middle, truth.shape)


def blind_loss(truth: np.ndarray, weights: np.ndarray | None) -> float:
    """Return the least log loss of one answer for all rows, divided by the number of rows as in Keras."""
    given = np.ones(len(truth)) if weights is None else weights
    total = given.sum()
    if not total:
        return 0.0
    shares = np.broadcast_to(given @ truth / total, truth.shape)
    return float((given * _each_logloss(shares, truth)).mean())


@dataclass(frozen=True)
class JackknifedError:
    """The error of answers on all rows, and for each part of the rows the error on all other rows."""

    whole: float
    without: np.ndarray


def jackknife(answers: np.ndarray, truth: np.ndarray, metric: str) -> JackknifedError:
    """Return the error of answers on all rows, and for each part of the rows the error on all other rows."""
    rows = len(truth)
    parts = min(_PARTS, rows)
    part = np.arange(rows) % parts
    if metric in EACH:
        errors = EACH[metric](answers, truth)
        total, count = errors.sum(), np.maximum(rows - np.bincount(part), 1)
        means = (total - np.bincount(part, errors)) / count
        whole, without = error_of(metric, total / rows), [error_of(metric, mean) for mean in means]
    else:
        measure = ERRORS[metric]
        whole = measure(answers, truth)
        kept = [part != one for one in range(parts if parts > 1 else 0)]
        without = [measure(answers[some], truth[some]) for some in kept]
    return JackknifedError(whole, np.array(without))


def gain(own: JackknifedError, other: JackknifedError) -> tuple[float, float]:
    """Return how much smaller the error `own` is than the error `other`, and how much of it may be chance."""
    whole, each = other.whole - own.whole, other.without - own.without
    if len(each) < 2:
        return whole, abs(whole)
    return whole, SURE * deviation(each)


def deviation(without: np.ndarray) -> float:
    """Return the standard deviation of a value, estimated by jackknife.

    `without` has, for each part of the rows, the value that was measured on all other rows.
    """
    parts = len(without)
    return float(np.sqrt((parts - 1) / parts * np.square(without - without.mean()).sum()))


def find_width(chance: float) -> float:
    """Return by how many standard deviations a value exceeds its mean with the probability `chance`.

    It approximates the quantile of Student's t distribution, as the jackknife has few parts.
    """
    z, freedom = NormalDist().inv_cdf(1 - chance), _PARTS - 1
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
