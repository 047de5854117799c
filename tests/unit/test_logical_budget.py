"""The epochs after which a run is evaluated, and budgets that are refused."""

from __future__ import annotations

import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.budget import check_budget, evaluation_epochs


@pytest.mark.parametrize(
    ("iterations", "frequency", "expected"),
    [
        (10, 3, [3, 6, 9, 10]),
        (10, 5, [5, 10]),
        (10, 10, [10]),
        (3, 1, [1, 2, 3]),
        (1, 1, [1]),
        (7, 5, [5, 7]),
    ],
)
def test_evaluation_every_so_many_epochs_and_after_the_last(
    iterations: int, frequency: int, expected: list[int]
) -> None:
    assert evaluation_epochs(iterations, frequency) == expected


def test_metrics_are_computed_at_the_end_unless_said_otherwise() -> None:
    assert check_budget(5, None) == (5, 5)
    assert check_budget(5, 1) == (5, 1)


@pytest.mark.parametrize(
    ("iterations", "frequency", "text"),
    [
        (0, None, "Number of iterations cannot be < 1"),
        (-1, 1, "Number of iterations cannot be < 1"),
        (None, None, "Number of iterations cannot be < 1"),
        (5, 0, r"metrics_compute_frequency must be in the range \(1 - 5\)"),
        (5, 6, r"metrics_compute_frequency must be in the range \(1 - 5\)"),
    ],
)
def test_budgets_that_are_refused(iterations: int | None, frequency: int | None, text: str) -> None:
    with pytest.raises(CerebroError, match=text):
        check_budget(iterations, frequency)
