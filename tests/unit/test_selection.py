"""Models for an ensemble are chosen as by a plain search, and for a row never by the row itself."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy.predicting.examining.scoring import ERRORS
from cerebro_plpy.predicting.selection import choose, choose_apart, mean_of, split

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
