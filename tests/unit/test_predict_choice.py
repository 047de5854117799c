"""How `pred_type` is read, and which classes and probabilities it selects from a model's output."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.predicting.answering.one import name_answer
from cerebro_plpy.predicting.choices import (
    LOGITS_SIGMOID,
    LOGITS_SOFTMAX,
    ClassChoice,
    Picked,
    find_likeliest,
    parse,
    pick,
    probabilities,
)
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.outputs import Output

LIKELY = np.array([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]])


def rows(picked: Picked) -> list[tuple[int, int, float, int]]:
    columns = (picked.rows, picked.places, picked.probabilities, picked.ranks)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize(
    ("pred_type", "choice"),
    [
        (None, ClassChoice()),
        ("prob", ClassChoice()),
        (" Prob", ClassChoice()),
        ("response", ClassChoice(most=1, ranked=False)),
        (3, ClassChoice(most=3)),
        (0.0, ClassChoice(above=0.0)),
        (0.99, ClassChoice(above=0.99)),
    ],
)
def test_pred_type_is_read(pred_type: str | float | None, choice: ClassChoice) -> None:
    assert parse(pred_type) == choice


@pytest.mark.parametrize("pred_type", ["", "probability", 0, -1, 1.0, -0.1, float("nan"), float("inf")])
def test_pred_type_outside_its_domain_is_refused(pred_type: str | float) -> None:
    with pytest.raises(CerebroError, match="pred_type cannot be"):
        parse(pred_type)


def test_all_classes_are_ranked_and_equal_ones_keep_their_order() -> None:
    assert rows(pick(LIKELY, ClassChoice())) == [
        (0, 1, 0.5, 1), (0, 2, 0.3, 2), (0, 0, 0.2, 3),
        (1, 0, 0.4, 1), (1, 2, 0.4, 2), (1, 1, 0.2, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(("most", "count"), [(1, 2), (2, 4), (3, 6), (9, 6)])
def test_so_many_classes_of_each_row(most: int, count: int) -> None:
    found = rows(pick(LIKELY, ClassChoice(most=most)))
    assert len(found) == count
    assert set(found) <= set(rows(pick(LIKELY, ClassChoice())))


def test_a_fraction_is_strict_and_keeps_the_rank() -> None:
    assert rows(pick(LIKELY, ClassChoice(above=0.3))) == [(0, 1, 0.5, 1), (1, 0, 0.4, 1), (1, 2, 0.4, 2)]


def test_nan_is_less_than_any_probability() -> None:
    """All functions name the same class: those of a row, of a batch, and of the metrics."""
    odd = np.array([[0.1, np.nan, 0.3], [np.nan, 0.1, 0.3], [np.nan] * 3])
    assert rows(pick(odd[:2], ClassChoice(most=1))) == [(0, 2, 0.3, 1), (1, 2, 0.3, 1)]
    assert rows(pick(odd[:2], ClassChoice(most=2))) == [
        (0, 2, 0.3, 1), (0, 0, 0.1, 2),
        (1, 2, 0.3, 1), (1, 1, 0.1, 2),
    ]  # fmt: skip
    values: list[str | None] = ["a", "b", "c"]
    output = Output("y", values, 3)
    named = [name_answer(output, row[np.newaxis])[0] for row in odd]
    assert named == [values[place] for place in find_likeliest(odd)] == ["c", "c", "a"]
    assert scoring.ERRORS[scoring.ACCURACY](odd, np.eye(3)[[2, 2, 0]]) == 0


def test_one_unit_gives_two_classes() -> None:
    found = probabilities(np.array([[0.25], [1.0]], np.float32), None, True)
    assert found.tolist() == [[0.75, 0.25], [0.0, 1.0]]


def test_logits_of_any_size_become_probabilities() -> None:
    outputs = np.array([[1000.0, 0.0], [0.0, 0.0]], np.float32)
    assert probabilities(outputs, LOGITS_SOFTMAX, False).tolist() == [[1.0, 0.0], [0.5, 0.5]]
    found = probabilities(np.array([[-1000.0], [0.0]], np.float32), LOGITS_SIGMOID, True)
    assert found.tolist() == [[1.0, 0.0], [0.5, 0.5]]
