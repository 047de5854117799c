"""Models for an ensemble are chosen as by a plain search, and for a row never by the row itself."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy.predicting.examining.scoring import ERRORS
from cerebro_plpy.predicting.selection import choose, choose_apart, mean_of, split
from cerebro_plpy.predicting.tempering import find_temperature

RANDOM = np.random.default_rng(4)
LABELS = RANDOM.integers(0, 3, 60)
TRUTH = np.eye(3)[LABELS]
SHARES = np.stack(
    [RANDOM.dirichlet(np.ones(3), 60) * 0.6 + TRUTH * share for share in (0.1, 0.3, 0.2, 0.25, 0.0)]
)
SHARES = SHARES / SHARES.sum(axis=2, keepdims=True)
NUMBERS = RANDOM.normal(size=(60, 1))
GUESSES = np.stack([NUMBERS + RANDOM.normal(size=(60, 1)) * spread for spread in (1, 0.5, 0.6, 2)])


@pytest.mark.parametrize(
    ("answers", "truth", "metric"),
    [
        (SHARES, TRUTH, "logloss"),
        (SHARES, TRUTH, "auc"),
        (GUESSES, NUMBERS, "rmse"),
        (GUESSES, NUMBERS, "mae"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 7, 25])
def test_each_round_takes_what_helps_most(
    answers: np.ndarray, truth: np.ndarray, metric: str, size: int
) -> None:
    chosen: list[int] = []
    errors: list[float] = []
    unit = 0.0
    for _ in range(size):
        means = [answers[[*chosen, place]].mean(axis=0) for place in range(len(answers))]
        plain = [ERRORS[metric](mean, truth) for mean in means]
        unit = unit or min(plain)
        tried = [round(error / unit, 6) for error in plain]
        chosen.append(int(np.argmin(tried)))
        errors.append(min(tried))
    kept = chosen[: int(np.argmin(errors)) + 1]
    counts, error = choose(answers, truth, metric, size)
    assert counts == {place: kept.count(place) for place in sorted(set(kept))}
    assert error == pytest.approx(unit * min(errors), rel=1e-5)
    assert error <= min(ERRORS[metric](one, truth) for one in answers) + 1e-12


def guess(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the answers of six models for 300 rows, and the truth: a quantity, or two or four classes."""
    random = np.random.RandomState(seed)
    if kind == "quantity":
        truth = random.normal(size=(300, 1))
        spreads = ((1, 0.6), (0.9, 0.5), (1.2, 0.55), (1, 1.0), (0.8, 0.5), (1, 0.6))
        return np.stack([truth * own + random.normal(size=(300, 1)) * by for own, by in spreads]), truth
    width = {"two": 2, "four": 4}[kind]
    truth = np.eye(width)[random.randint(0, width, 300)]
    spreads = ((1, 1), (1.5, 1.2), (0.8, 0.7), (2, 2), (0.5, 0.4), (1, 1.1))
    powers = np.exp([truth * own + random.normal(size=(300, width)) * by for own, by in spreads])
    return powers / powers.sum(axis=2, keepdims=True), truth


# How often AutoGluon 1.6.3 chose each model in 25 rounds: EnsembleSelection(25, problem_type, metric).
CHOSEN_BY_AUTOGLUON = {
    ("two", "logloss"): [[4, 10, 0, 7, 0, 0], [0, 16, 2, 6, 0, 1], [1, 12, 0, 6, 0, 4]],
    # With the first seed, models tie, and it draws one of them.
    ("two", "auc"): [[], [2, 3, 5, 2, 6, 3], [1, 3, 4, 3, 6, 2]],
    ("four", "logloss"): [[1, 9, 0, 5, 0, 0], [2, 11, 0, 4, 0, 1], [3, 13, 0, 8, 0, 0]],
    ("quantity", "rmse"): [[4, 6, 5, 1, 5, 4], [3, 4, 5, 1, 3, 3], [3, 4, 4, 1, 4, 3]],
    ("quantity", "mae"): [[3, 4, 4, 1, 4, 3], [3, 3, 5, 1, 3, 3], [3, 4, 4, 1, 3, 2]],
    ("quantity", "r2"): [[4, 6, 5, 1, 5, 4], [3, 4, 5, 1, 3, 3], [3, 4, 4, 1, 4, 3]],
}


@pytest.mark.parametrize("kind, metric", CHOSEN_BY_AUTOGLUON)
def test_models_are_chosen_as_often_as_by_autogluon(kind: str, metric: str) -> None:
    for seed, wanted in enumerate(CHOSEN_BY_AUTOGLUON[kind, metric], 1):
        counts, _ = choose(*guess(kind, seed), metric, 25)
        assert not wanted or [counts.get(place, 0) for place in range(6)] == wanted


# The temperatures of AutoGluon 1.6.3 for some of these models: tune_temperature_scaling(answers, labels).
TEMPERATURES = {
    ("two", 1): {0: 1.0288946628570557, 1: 0.9264817833900452},
    ("two", 2): {0: 1.1461718082427979, 1: 0.8922833800315857},
    ("two", 3): {0: 1.0139957666397095, 1: 1.0117919445037842},
    ("four", 1): {0: 0.934482753276825, 1: 0.9061302542686462},
    ("four", 2): {0: 0.9922866821289062, 1: 0.8777552247047424},
    ("four", 3): {0: 0.992845892906189, 1: 0.8990327715873718},
}


@pytest.mark.parametrize("kind, seed", TEMPERATURES)
def test_temperatures_are_those_of_autogluon(kind: str, seed: int) -> None:
    answers, truth = guess(kind, seed)
    for place, wanted in TEMPERATURES[kind, seed].items():
        assert find_temperature(answers[place], truth) == pytest.approx(wanted, rel=1e-3)


def test_a_model_whose_twin_is_in_is_left_out() -> None:
    """The twin differs by less than the sixth decimal, and would be the better choice by that."""
    answers, truth = guess("quantity", 1)
    for unit in (1e-6, 1.0, 1e6):
        several = unit * np.stack([answers[0], answers[0] + 1e-9, answers[3]])
        counts, _ = choose(several, unit * truth, "rmse", 25)
        assert not (0 in counts and 1 in counts) and len(counts) == 2


def test_of_equals_one_that_is_in_goes_first() -> None:
    same = np.stack([GUESSES[1]] * 3)
    assert choose(same, NUMBERS, "rmse", 5) == ({0: 1}, ERRORS["rmse"](GUESSES[1], NUMBERS))


def test_a_probability_of_nothing_is_no_infinite_loss() -> None:
    sure = np.eye(3)[(LABELS + 1) % 3][np.newaxis]
    counts, error = choose(sure, TRUTH, "logloss", 3)
    assert counts == {0: 1} and np.isfinite(error)


def test_both_halves_have_rows_of_each_class() -> None:
    labels = np.repeat([0, 1, 2], [7, 2, 31])
    one, other = split(np.eye(3)[labels], True)
    assert sorted([*one, *other]) == list(range(40))
    for half in (one, other):
        assert abs(np.bincount(labels[half]) - np.bincount(labels) / 2).max() <= 0.5
    one, other = split(NUMBERS, False)
    assert abs(NUMBERS[one].mean() - NUMBERS[other].mean()) < NUMBERS.std() / 4


def test_no_row_is_answered_by_what_it_chose() -> None:
    """Each model is right for one half of the rows, so the choice of one half is wrong for the other half."""
    truth = np.zeros((8, 1))
    one, other = split(truth, False)
    knows_one, knows_other = np.ones((8, 1)), np.full((8, 1), 2.0)
    knows_one[one], knows_other[other] = 0, 0
    answers = np.stack([knows_one, knows_other])
    found = choose_apart(answers, truth, False, "mae", 1).plain
    assert (found[one] == 2).all() and (found[other] == 1).all()
    assert ERRORS["mae"](found, truth) > choose(answers, truth, "mae", 1)[1]


def test_a_row_that_is_alone_chooses_for_itself() -> None:
    answers = np.array([[[3.0]], [[1.0]]])
    assert choose_apart(answers, np.array([[1.0]]), False, "rmse", 4).plain == [[1.0]]


def test_a_model_counts_as_often_as_it_was_chosen() -> None:
    assert mean_of(GUESSES, {0: 1, 2: 3}) == pytest.approx(0.25 * GUESSES[0] + 0.75 * GUESSES[2])
