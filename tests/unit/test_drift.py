"""How rows that are added to a packed table are compared with its earlier rows."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy.features import drift
from cerebro_plpy.features.specification import Category, Date, Feature, FeatureInput, Number, Text, Treatment

RANDOM = np.random.default_rng(1)


def feature(way: Treatment, **statistics: float) -> Feature:
    return Feature("a", "text", "text", "independent_var", way, statistics)


def shifted(way: Treatment, before: np.ndarray, after: np.ndarray, nulls: float = 0.0) -> drift.Shift:
    counts = drift.Counts(len(after), round(len(after) * (1 - nulls)))
    return drift.of_feature(feature(way, nulls=0), len(before), counts, before, after)


def test_the_index_is_its_formula() -> None:
    """The expected stability index is computed by hand, for two classes in shares of 50:50 and then 25:75."""
    before, after = (np.array([[0, 1]] * a + [[1, 0]] * b) for a, b in ((50, 50), (25, 75)))
    found = drift.of_classes("y", before, after)
    expected = (0.75 - 0.5) * np.log(0.75 / 0.5) + (0.25 - 0.5) * np.log(0.25 / 0.5)
    assert found.stability == pytest.approx(expected)


def test_chance_alone_is_no_shift() -> None:
    before, after = RANDOM.normal(size=(5000, 1)), RANDOM.normal(size=(100, 1))
    number = Number("standard", 0.0, 1.0, 0.0, indicator=False)
    assert not shifted(number, before, after).is_large
    assert shifted(number, before, after + 1).is_large


@pytest.mark.parametrize("encode", ["one_hot", "embed", "ordinal"])
def test_unseen_categories_are_counted_whatever_the_encoding(encode: str) -> None:
    way = Category(encode, ["x", "y"], null=False, other=False, buckets=0, fill=None)
    codes = {"one_hot": ([[1, 0], [0, 1]], [0, 0]), "embed": ([[2], [3]], [0]), "ordinal": ([[0], [1]], [-1])}
    known, unseen = codes[encode]
    before = np.array(known * 50, np.float32)
    after = np.array(known * 40 + [unseen] * 20, np.float32)
    found = shifted(way, before, after)
    assert (found.unseen_before, found.unseen) == (0.0, 0.2)
    assert found.stability is not None
    assert found.stability > 0.25


def test_null_without_a_place_of_its_own_is_not_unseen() -> None:
    way = Category("one_hot", ["x", "y"], null=False, other=False, buckets=0, fill=None)
    before, after = np.eye(2, dtype=np.float32)[[0, 1] * 50], np.zeros((100, 2), np.float32)
    assert shifted(way, before, after, nulls=0.75).unseen == 0.25


def test_words_dates_and_hashes_are_compared_too() -> None:
    words = Text(3, ["a", "b"], 0)
    before, after = np.array([[2, 3, 0]] * 50), np.array([[2, 1, 1]] * 50)
    found = shifted(words, before, after)
    assert (found.unseen_before, found.unseen) == (0.0, pytest.approx(2 / 3))
    hashes = Category("hash", [], null=True, other=False, buckets=9, fill=None)
    assert shifted(hashes, np.full((9, 1), 2), np.full((9, 1), 2)).unseen is None
    months = Date(["month"], cyclic=True, scale="standard", center=0.0, spread=1.0, fill=0.0, indicator=False)
    angles = RANDOM.uniform(0, np.pi, (400, 1))
    early = np.hstack([np.sin(angles), np.cos(angles)])
    assert shifted(months, early, early).stability == pytest.approx(0)
    assert shifted(months, early, -early).is_large


def test_columns_are_found_in_their_input() -> None:
    number = Number("standard", 0.0, 1.0, 0.0, indicator=True)
    one = FeatureInput("independent_var", (feature(number), Feature("b", "", "", "", number)))
    found = drift.samples_of(one, np.arange(8).reshape(2, 4))
    assert found["a"].tolist() == [[0, 1], [4, 5]]
    assert found["b"].tolist() == [[2, 3], [6, 7]]


@pytest.mark.parametrize(("nulls", "share"), [(0, 0.0), (25, 0.25), (-11, 0.0), (120, 1.0)])
def test_the_share_of_nulls_is_one_even_of_rows_that_changed_while_they_were_read(
    nulls: int, share: float
) -> None:
    assert drift.null_share(feature(Text(3, [], 0), nulls=nulls), 100) == share
