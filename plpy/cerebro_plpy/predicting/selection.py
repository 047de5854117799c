"""Chooses models for an ensemble, one after the other: always the model that helps the mean answer most.

After Caruana and others (2004): a model may be chosen again, which gives it more weight. Models look better
on the rows by which they were chosen. So the rows are halved, and each half measures the choice of the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.predicting.examining.scoring import ERRORS, LOGLOSS
from cerebro_plpy.predicting.tempering import find_temperature, temper

# Errors that differ by less, as a share of them, are the same. In later rounds, so are errors with the same
# decimals as shares of the first error, so that no rounding error chooses the twin of a model that is in.
_SAME, _DECIMALS = 1e-12, 6


def _go_on() -> None:
    pass


def choose(
    answers: np.ndarray, truth: np.ndarray, metric: str, size: int, tick: Callable[[], None] = _go_on
) -> tuple[dict[int, int], float]:
    """Return how often each model is chosen, by its place in `answers`, and the error of the mean answer.

    `answers` has an array (rows, numbers) for each model. Among equally good models, a model that has been
    chosen already comes first, and then the first model. Choices after the smallest error do not count.
    """
    measure = ERRORS[metric]
    total, chosen, errors, unit = np.zeros(truth.shape), list[int](), list[float](), 1.0
    for number in range(1, size + 1):
        tried = [measure((total + one) / number, truth) for one in answers]
        compared = [round(error / unit, _DECIMALS) for error in tried] if number > 1 else tried
        least = min(compared)
        good = [place for place, error in enumerate(compared) if error <= least + _SAME * abs(least)]
        place = min(good, key=lambda one: (one not in chosen, one))
        chosen.append(place)
        errors.append(tried[place])
        unit = errors[0] if 0 < errors[0] < math.inf else 1.0
        total = total + answers[place]
        tick()
    best = min(range(size), key=lambda number: (round(errors[number] / unit, _DECIMALS), number))
    kept = chosen[: best + 1]
    return {place: kept.count(place) for place in sorted(set(kept))}, errors[best]


def mean_of(answers: np.ndarray, counts: Mapping[int, int]) -> np.ndarray:
    """Return the mean of the models' answers, each weighted by its count: how often the model was chosen."""
    total = sum(counts.values())
    return np.sum([answers[place] * (count / total) for place, count in counts.items()], axis=0)


def split(truth: np.ndarray, is_classes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Divide rows into two halves, and return the places of the rows of each half.

    Sorted by class or quantity, rows go to both halves in turn.
    """
    first = truth.argmax(axis=1) if is_classes else truth[:, 0]
    order = np.argsort(first, kind="stable")
    return np.sort(order[::2]), np.sort(order[1::2])


@dataclass(frozen=True)
class AnswersApart:
    """The mean answer for each row by the models that the other half of the rows has chosen (`plain`).

    `tempered` has these answers at the temperature that fits the other half best.
    """

    plain: np.ndarray
    tempered: np.ndarray


def choose_apart(
    answers: np.ndarray,
    truth: np.ndarray,
    is_classes: bool,
    metric: str,
    size: int,
    tick: Callable[[], None] = _go_on,
) -> AnswersApart:
    """Return the answers for each row by the models that the other half of the rows chooses.

    If the metric is log loss, the field `tempered` has these answers at the temperature that fits the other
    half best; otherwise it equals `plain`.
    """
    one, other = split(truth, is_classes)
    plain, tempered = np.empty(truth.shape), np.empty(truth.shape)
    # A single row has no other half: it chooses for itself.
    for chooses, measures in ((one, other), (other if len(other) else one, one)):
        counts, _ = choose(answers[:, chooses], truth[chooses], metric, size, tick)
        plain[measures] = tempered[measures] = mean_of(answers[:, measures], counts)
        if metric == LOGLOSS:
            temperature = find_temperature(mean_of(answers[:, chooses], counts), truth[chooses])
            tempered[measures] = temper(plain[measures], temperature)
    return AnswersApart(plain, tempered)
