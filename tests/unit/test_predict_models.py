"""How rows are shaped to fit a model's inputs, and which classes its outputs have."""

from __future__ import annotations

from typing import Any

import pytest

from cerebro_plpy.engine.checks.architecture import DescribedModel
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.features.array_rows import fit_shape
from cerebro_plpy.madlib.params import parse_compile
from cerebro_plpy.predicting.outputs import Dependent, Output, settle


def described(*outputs: tuple[int | None, ...]) -> DescribedModel:
    names = tuple(f"out_{number}" for number in range(len(outputs)))
    return DescribedModel("{}", ((4,),), outputs, ("in",), names, 0, 0, {}, ())


def loss(text: str) -> Any:
    return parse_compile(f"optimizer='SGD()',loss={text!r}").loss


@pytest.mark.parametrize(
    ("arrived", "wanted", "is_flat", "shape"),
    [
        ((4,), (4,), True, (4,)),
        ((4, 4), (4, 4), False, (4, 4)),
        ((16,), (4, 4), True, (4, 4)),
        ((7, 3), (None, 3), False, (7, 3)),
        ((5,), (None,), True, (5,)),
    ],
)
def test_rows_that_fit(
    arrived: tuple[int, ...], wanted: tuple[int | None, ...], is_flat: bool, shape: tuple[int, ...]
) -> None:
    assert fit_shape(arrived, wanted, is_flat, "x") == shape


@pytest.mark.parametrize(
    ("arrived", "wanted", "is_flat"),
    [((5,), (4,), True), ((16,), (4, 5), True), ((2, 8), (4, 4), False), ((6,), (None, 3), True)],
)
def test_rows_that_do_not_fit(
    arrived: tuple[int, ...], wanted: tuple[int | None, ...], is_flat: bool
) -> None:
    with pytest.raises(CerebroError, match="x has rows of shape"):
        fit_shape(arrived, wanted, is_flat, "x")


def test_classes_and_numbers() -> None:
    dependents = [Dependent("a", ["u", "v"], True), Dependent("b", None, False), Dependent("c", None, True)]
    assert settle(described((2,), (3, 5), (2,)), dependents) == [
        Output("a", ["u", "v"], 2), Output("b", None, 15), Output("c", ["0", "1"], 2),
    ]  # fmt: skip


def test_one_unit_is_the_second_of_two_classes() -> None:
    assert settle(described((1,)), [Dependent("a", ["no", "yes"], True)])[0].is_binary
    assert settle(described((1,)), [Dependent("a", None, True)])[0].values == ["0", "1"]


def test_null_is_a_class_at_the_front_and_padding_at_the_end() -> None:
    (output,) = settle(described((4,)), [Dependent("a", [None, "u", None, None], True)])
    assert output.values == [None, "u"]


@pytest.mark.parametrize(
    ("shape", "text", "logits"),
    [
        ((3,), "CategoricalCrossentropy(from_logits=True)", "softmax"),
        ((3,), "CategoricalCrossentropy(from_logits=False)", None),
        ((3,), "categorical_crossentropy", None),
        ((1,), "BinaryCrossentropy(from_logits=True)", "sigmoid"),
        ((2,), "BinaryCrossentropy(from_logits=True)", "sigmoid"),
    ],
)
def test_the_loss_says_whether_outputs_are_logits(
    shape: tuple[int, ...], text: str, logits: str | None
) -> None:
    values: list[str | None] = [str(number) for number in range(max(2, shape[0]))]
    assert settle(described(shape), [Dependent("a", values, True)], loss(text))[0].logits == logits


@pytest.mark.parametrize(
    ("outputs", "dependents", "message"),
    [
        ([(3,)], [Dependent("a", ["u", "v"], True)], "2 class values, but the model gives 3"),
        ([(3,), (1,)], [Dependent("a", None, True)], "2 outputs for 1 dependent"),
        ([(3, 2)], [Dependent("a", None, True)], "cannot be written as rows"),
        ([(None, 2)], [Dependent("a", None, False)], "cannot be written as rows"),
    ],
)
def test_outputs_that_do_not_fit(
    outputs: list[tuple[int | None, ...]], dependents: list[Dependent], message: str
) -> None:
    with pytest.raises(CerebroError, match=message):
        settle(described(*outputs), dependents)
