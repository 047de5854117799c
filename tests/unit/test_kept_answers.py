"""Metrics that are not a mean over rows, such as AUC, are computed from a sample of kept answers."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.examining.kept_answers import LEAST_ROWS, KeptAnswers, measure_part, measure_rows
from cerebro_plpy.predicting.examining.parts_of_rows import _of_all_rows

OF_CLASSES, OF_QUANTITIES = scoring.of_all_rows(True), scoring.of_all_rows(False)
TRIALS = 100


def draw(random: np.random.Generator, rows: int, *, is_classes: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return random answers for some rows, and the true classes or quantities of these rows."""
    score = random.normal(size=rows)
    if not is_classes:
        return score[:, np.newaxis], (score + random.normal(size=rows))[:, np.newaxis]
    share = 1 / (1 + np.exp(-score))
    label = (random.random(rows) < share).astype(int)
    return np.stack([1 - share, share], axis=1), np.eye(2)[label]


@pytest.mark.parametrize("is_classes", [True, False])
def test_few_rows_are_measured_as_they_are(is_classes: bool) -> None:
    answers, truth = draw(np.random.default_rng(1), 300, is_classes=is_classes)
    kept = KeptAnswers()
    for rows in np.split(np.arange(300), 3):
        kept.add(answers[rows], truth[rows], rows % 2)
    for metric in scoring.of_all_rows(is_classes):
        whole = measure_rows(kept.all_rows(), metric)
        assert whole is not None
        part = measure_part(kept.by_part()[1], 300, metric, whole)
        assert part is not None
        assert whole.error == pytest.approx(scoring.ERRORS[metric](answers, truth), rel=1e-5)
        assert part.error == pytest.approx(scoring.ERRORS[metric](answers[1::2], truth[1::2]), rel=1e-5)


def test_large_quantities_are_kept_in_full() -> None:
    answers, truth = draw(np.random.default_rng(4), 300, is_classes=False)
    for offset, factor in ((1.7e9, 30.0), (0.0, 1e30)):
        kept = KeptAnswers()
        kept.add(offset + factor * answers, offset + factor * truth)
        found = measure_rows(kept.all_rows(), scoring.R2)
        assert found is not None
        assert found.error == pytest.approx(scoring.ERRORS[scoring.R2](answers, truth), rel=1e-5)


def test_of_many_rows_chance_keeps_some() -> None:
    """A random sample of the rows is kept, in which each part has its share."""
    rows = 50_000
    answers, truth = draw(np.random.default_rng(2), rows)
    kept = KeptAnswers(most_rows=4_000)
    for some in np.split(np.arange(rows), 50):
        kept.add(answers[some], truth[some], np.arange(len(some)) % 2)
    found = measure_rows(kept.all_rows(), scoring.AUC)
    assert found is not None
    assert found.error == pytest.approx(scoring.ERRORS[scoring.AUC](answers, truth), abs=0.03)
    assert 1_000 < len(kept._kept[0]) <= 4_000
    assert kept._kept[1].mean() == pytest.approx(0.5, abs=0.05)


def test_rows_of_one_class_have_no_area() -> None:
    kept = KeptAnswers()
    kept.add(np.full((50, 2), 0.5), np.eye(2)[np.zeros(50, int)])
    assert (
        measure_rows(kept.all_rows(), scoring.AUC) is None
        and measure_rows(kept.all_rows(), scoring.F1) is not None
    )


@pytest.mark.parametrize("metric", [*OF_CLASSES, *OF_QUANTITIES])
def test_the_interval_has_the_true_value(metric: str) -> None:
    random, within = np.random.default_rng(3), 0
    is_classes = metric in OF_CLASSES
    true = scoring.ERRORS[metric](*draw(random, 200_000, is_classes=is_classes))
    for _ in range(TRIALS):
        kept = KeptAnswers()
        kept.add(*draw(random, 400, is_classes=is_classes))
        found = measure_rows(kept.all_rows(), metric)
        assert found is not None
        within += abs(found.error - true) <= scoring.find_width(0.025) * found.deviation
    assert within >= 90


@pytest.mark.parametrize("rows", [LEAST_ROWS - 1, LEAST_ROWS, 200])
def test_no_part_of_equal_ones_is_worse(rows: int) -> None:
    random, named, parts = np.random.default_rng(4), 0, 20
    for _ in range(TRIALS):
        kept = KeptAnswers()
        kept.add(*draw(random, rows * parts), np.arange(rows * parts) % parts)
        found = _of_all_rows(kept, parts, [scoring.AUC])
        named += any(line[-1] for lines in found.values() for line in lines)
    assert named <= 5


def test_each_of_many_parts_has_its_rows() -> None:
    random, kept, parts = np.random.default_rng(6), KeptAnswers(), 10_000
    kept.add(*draw(random, 5 * parts), np.arange(5 * parts) % parts)
    assert len(_of_all_rows(kept, parts, [scoring.F1])) == parts + 1
    assert {len(rows.truth) for rows in kept.by_part().values()} == {5}


def test_a_part_that_is_answered_by_chance_is_worse() -> None:
    random, kept = np.random.default_rng(5), KeptAnswers()
    answers, truth = draw(random, 2_000)
    parts = np.arange(2_000) % 5
    truth[parts == 3] = np.eye(2)[random.integers(0, 2, 400)]
    kept.add(answers, truth, parts)
    found = _of_all_rows(kept, 5, OF_CLASSES)
    assert {part for part, lines in found.items() if any(line[-1] for line in lines)} == {3}
    assert all(line[-1] for line in found[3])
