"""Chooses models for an ensemble: one after the other, each the one that helps the mean most.

After Caruana and others (2004): a model may be chosen again, which gives it more weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from cerebro_plpy.madlib.nearest import unknown

LOGLOSS, ACCURACY, RMSE, MAE = "logloss", "accuracy", "rmse", "mae"
# A probability of 0 would make the loss infinite, for one row among all.
_LEAST = 1e-15
# Errors that differ by less are the same.
_SAME = 1e-12


def _each_logloss(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    shares = np.clip(answers / answers.sum(axis=1, keepdims=True), _LEAST, 1)
    return -np.log((shares * truth).sum(axis=1))


def _each_wrong(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return (answers.argmax(axis=1) != truth.argmax(axis=1)).astype(np.float64)


def _each_square(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return np.square(answers - truth).mean(axis=1)


def _each_absolute(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return np.abs(answers - truth).mean(axis=1)


def _logloss(answers: np.ndarray, truth: np.ndarray) -> float:
    return float(_each_logloss(answers, truth).mean())


def _wrong(answers: np.ndarray, truth: np.ndarray) -> float:
    return float(_each_wrong(answers, truth).mean())


def _rmse(answers: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(_each_square(answers, truth).mean()))


def _mae(answers: np.ndarray, truth: np.ndarray) -> float:
    return float(_each_absolute(answers, truth).mean())


# What each row is wrong by, for each metric.
EACH: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    LOGLOSS: _each_logloss,
    ACCURACY: _each_wrong,
    RMSE: _each_square,
    MAE: _each_absolute,
}
# What is to be small, for each metric.
ERRORS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    LOGLOSS: _logloss,
    ACCURACY: _wrong,
    RMSE: _rmse,
    MAE: _mae,
}
OF_CLASSES, OF_QUANTITIES = (LOGLOSS, ACCURACY), (RMSE, MAE)


def check_metric(given: str | None, is_classes: bool) -> str:
    """Return the metric that is named, or the usual one; refuse one that does not fit what is predicted."""
    known = OF_CLASSES if is_classes else OF_QUANTITIES
    if given is None:
        return known[0]
    if given not in known:
        what = "classes" if is_classes else "a quantity"
        problem = f"the model predicts {what}, for which no metric is called {given[:60]!r}"
        raise unknown(problem, given, known)
    return given


def shown(metric: str, error: float) -> float:
    """Return the metric itself for an error of these."""
    return 1 - error if metric == ACCURACY else error


def choose(answers: np.ndarray, truth: np.ndarray, metric: str, size: int) -> tuple[dict[int, int], float]:
    """Return how often each model is chosen, by its place in the answers (model, row, number), and the error.

    Of equals, one that is in already goes before others, and the first before those after it. What counts in
    the end is the shortest beginning with the smallest error.
    """
    measure = ERRORS[metric]
    total, chosen, errors = np.zeros(truth.shape), list[int](), list[float]()
    for number in range(1, size + 1):
        tried = [measure((total + one) / number, truth) for one in answers]
        least = min(tried)
        good = [place for place, error in enumerate(tried) if error <= least + _SAME * abs(least)]
        place = min(good, key=lambda one: (one not in chosen, one))
        chosen.append(place)
        errors.append(tried[place])
        total = total + answers[place]
    best = min(range(size), key=lambda number: (errors[number], number))
    kept = chosen[: best + 1]
    return {place: kept.count(place) for place in sorted(set(kept))}, errors[best]
