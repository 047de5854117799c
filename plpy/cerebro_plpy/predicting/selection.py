"""Chooses models for an ensemble: one after the other, each the one that helps the mean most.

After Caruana and others (2004): a model may be chosen again, which gives it more weight. Rows that choose
flatter what they chose, so each half of them measures what the other half has chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.predicting.examining.scoring import ERRORS, LOGLOSS
from cerebro_plpy.predicting.tempering import find_temperature, temper

# Errors that differ by less are the same.
_SAME = 1e-12


def _go_on() -> None:
    pass


def choose(
    answers: np.ndarray, truth: np.ndarray, metric: str, size: int, tick: Callable[[], None] = _go_on
) -> tuple[dict[int, int], float]:
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
        tick()
    best = min(range(size), key=lambda number: (errors[number], number))
    kept = chosen[: best + 1]
    return {place: kept.count(place) for place in sorted(set(kept))}, errors[best]


def mean_of(answers: np.ndarray, counts: Mapping[int, int]) -> np.ndarray:
    """Return the mean of the answers of models that were chosen so often."""
    total = sum(counts.values())
    return np.sum([answers[place] * (count / total) for place, count in counts.items()], axis=0)


def split(truth: np.ndarray, is_classes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of two halves of the rows: in the order of their class or quantity, every second."""
    first = truth.argmax(axis=1) if is_classes else truth[:, 0]
    order = np.argsort(first, kind="stable")
    return np.sort(order[::2]), np.sort(order[1::2])


@dataclass(frozen=True)
class AnswersApart:
    """Answers for each row by the choice of the other half, and the same at that half's temperature."""

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
    """Return what each row is answered by the models that the other half of the rows chooses.

    A temperature is set where probabilities are what counts.
    """
    one, other = split(truth, is_classes)
    plain, tempered = np.empty(truth.shape), np.empty(truth.shape)
    # A row that is alone chooses for itself.
    for chooses, measures in ((one, other), (other if len(other) else one, one)):
        counts, _ = choose(answers[:, chooses], truth[chooses], metric, size, tick)
        plain[measures] = tempered[measures] = mean_of(answers[:, measures], counts)
        if metric == LOGLOSS:
            temperature = find_temperature(mean_of(answers[:, chooses], counts), truth[chooses])
            tempered[measures] = temper(plain[measures], temperature)
    return AnswersApart(plain, tempered)
