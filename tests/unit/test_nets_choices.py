"""A line of layers with choices stands for one net for each combination of choices."""

from __future__ import annotations

import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.nets.choices import find_lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Dense(8)", ["Dense(8)"]),
        ("Dense(8) * 2", ["Dense(8),Dense(8)"]),
        ("Dense({8, 16})*{1..2}", ["Dense(8)", "Dense(8),Dense(8)", "Dense(16)", "Dense(16),Dense(16)"]),
        ("{Dense(8), Dropout({0.1, 0.2})}", ["Dense(8)", "Dropout(0.1)", "Dropout(0.2)"]),
        ("Dense(8), Dropout(0.1) * {0..1}", ["Dense(8)", "Dense(8), Dropout(0.1)"]),
        ("Dense(8, {'relu', 'tanh'})", ["Dense(8, 'relu')", "Dense(8, 'tanh')"]),
        # Neither a dictionary nor what is quoted is a choice.
        ("Thing({'a': 1, 'b': 2})", ["Thing({'a': 1, 'b': 2})"]),
        ("Dense(8, name='{a, b} * 2')", ["Dense(8, name='{a, b} * 2')"]),
        ("Conv1D(filters=2 * 3)", ["Conv1D(filters=2 * 3)"]),
        # Equal combinations make one net.
        ("Dense({8, 8})", ["Dense(8)"]),
        # A brace without its pair is left to the parser of the line.
        ("Dense({8)", ["Dense({8)"]),
    ],
)
def test_each_combination_is_a_line(text: str, lines: list[str]) -> None:
    assert [line for _, line in find_lines(text)] == lines


def test_a_title_has_the_choices_made() -> None:
    assert [title for title, _ in find_lines("Dense({8,\n 16}, 'relu') * 3")] == [
        "Dense(8, 'relu') * 3",
        "Dense(16, 'relu') * 3",
    ]


def test_braces_in_braces_without_end_are_refused() -> None:
    with pytest.raises(CerebroError, match="malformed line of layers"):
        find_lines("Dense(" + "{" * 400 + "8" + "}" * 400 + ")")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Dense({1..1001})", "the line gives 1001 nets, which must be from 1 to 1000"),
        ("Dense({1..999999999})", "the line gives 1001 nets"),
        ("Dense({1..40}) * {1..40}", "the line gives 1600 nets"),
        ("Dense({3..1})", "the line gives 0 nets"),
        ("Dense(1) * 1001", "a layer is there 1001 times: Dense"),
    ],
)
def test_too_many_are_refused(text: str, said: str) -> None:
    with pytest.raises(CerebroError, match=said):
        find_lines(text)
