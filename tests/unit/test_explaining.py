"""The mean row, and what each number of a row adds to the score on the way from the mean row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cerebro_plpy.explaining.means import find_mean_row, find_shares
from cerebro_plpy.explaining.path import ENOUGH, FIRST, MOST, attribute
from cerebro_plpy.features.rows import RowEncoder
from cerebro_plpy.features.specification import (
    Array,
    Category,
    Date,
    Feature,
    Number,
    Specification,
    Treatment,
)

RANDOM = np.random.default_rng(5)
ROWS = 200
PLANS = ["a", "b", "c"]


def feature(name: str, way: Treatment, element: str, of: str = "vector", **statistics: Any) -> Feature:
    return Feature(name, element, element, of, way, statistics)


def test_the_mean_row_is_the_mean_of_the_rows() -> None:
    """The mean row includes the values that replace NULLs; rare categories share the place of "other"."""
    sizes = [None if number % 5 == 0 else float(number % 17) for number in range(ROWS)]
    plans = [None if number % 8 == 0 else "abbcccx"[number % 7] for number in range(ROWS)]
    present = [one for one in sizes if one is not None]
    known = {
        "counts": [plans.count(one) for one in PLANS],
        "nulls": plans.count(None),
        "present": ROWS - plans.count(None),
    }
    means = {"mean": sum(present) / len(present), "nulls": sizes.count(None)}
    specification = Specification(
        (
            feature("size", Number("minmax", 2.0, 4.0, 3.0, indicator=True), "float8", **means),
            feature(
                "plan",
                Category("one_hot", PLANS, null=True, other=True, buckets=0, fill=None),
                "text",
                **known,
            ),
            feature(
                "place",
                Category("one_hot", PLANS, null=False, other=False, buckets=0, fill="b"),
                "text",
                **known,
            ),
            feature(
                "order",
                Category("ordinal", PLANS, null=False, other=False, buckets=0, fill=None),
                "text",
                **known,
            ),
            feature(
                "code",
                Category("embed", PLANS, null=False, other=False, buckets=0, fill=None),
                "text",
                "code",
                **known,
            ),
        ),
        ROWS,
    )
    encoder = RowEncoder(specification)
    rows = [
        encoder.encode({"size": size, "plan": plan, "place": plan, "order": plan, "code": plan})
        for size, plan in zip(sizes, plans, strict=True)
    ]
    numbers, _ = find_mean_row(specification)
    assert numbers == pytest.approx(np.concatenate([row[0] for row in rows]).mean(axis=0), abs=1e-6)
    shares = find_shares(specification.inputs[1], ROWS)
    assert shares is not None
    codes = np.concatenate([row[1] for row in rows]).astype(int).ravel()
    assert shares[:, 0] == pytest.approx(np.bincount(codes, minlength=5) / ROWS)
    assert find_shares(specification.inputs[0], ROWS) is None


def test_the_mean_date_has_no_direction_in_a_circle() -> None:
    way = Date(
        ["year", "days", "month"],
        cyclic=True,
        scale="standard",
        center=1e9,
        spread=1e6,
        fill=1e9,
        indicator=False,
    )
    (found,) = find_mean_row(Specification((feature("at", way, "date"),), 10))
    assert found.tolist() == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("counts", ["many", [1, 2], [1, "2", 3], [-1, 1, 1], [0, 0, 0], None])
def test_counts_that_are_none_make_all_values_alike(counts: object) -> None:
    way = Category("one_hot", PLANS, null=False, other=False, buckets=0, fill=None)
    array = feature("x", Array([2, 2], 1.0), "float4", "x")
    specification = Specification((feature("plan", way, "text", counts=counts), array), 9)
    numbers, zeros = find_mean_row(specification)
    assert numbers == pytest.approx([1 / 3] * 3)
    assert zeros.tolist() == [[0, 0], [0, 0]]


def bend(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores and slopes of max(0, a linear function), as of a net with one rectifier."""
    weights = np.array([2.0, -1.0, 0.5])
    inside = points @ weights - 0.8
    return np.maximum(inside, 0), np.where(inside > 0, 1.0, 0.0)[:, np.newaxis] * weights


@pytest.mark.parametrize("at_once", [1, 7, 32])
def test_parts_add_up_to_the_difference(at_once: int) -> None:
    calls = []

    def slopes_at(points: Any) -> Any:
        scores, slopes = bend(points[0].astype(float))
        calls.append(len(scores))
        return scores, [slopes]

    start, end = np.zeros(3, np.float32), np.array([1.0, 0.5, 0.2], np.float32)
    found = attribute(slopes_at, [start], [end], at_once)
    assert max(calls) <= at_once
    assert found.baseline == 0
    assert found.score == pytest.approx(0.8, rel=1e-6)
    assert found.error <= ENOUGH
    assert sum(found.parts[0]) == pytest.approx(0.8, rel=ENOUGH)
    assert found.parts[0] / end == pytest.approx(sum(found.parts[0]) / 1.6 * np.array([2, -1, 0.5]))


def test_steps_are_cut_where_the_score_jumps_and_no_longer_than_worthwhile() -> None:
    asked: list[float] = []

    def slopes_at(points: Any) -> Any:
        asked.extend(points[0][:, 0].tolist())
        inside = points[0].astype(float)[:, 0]
        return np.where(inside > 0.3, 1.0, 0.0), [np.zeros_like(points[0])]

    found = attribute(slopes_at, [np.zeros(1, np.float32)], [np.ones(1, np.float32)], 32)
    assert found.error == 1
    assert len(asked) <= MOST
    assert all(abs(place - 0.3) < 1 / FIRST for place in asked[FIRST:])


def test_a_net_that_turns_at_once_costs_few_points() -> None:
    asked = []

    def slopes_at(points: Any) -> Any:
        asked.append(len(points[0]))
        inside = points[0].astype(float)[:, 0]
        return np.tanh(300 * inside), [(300 / np.cosh(np.minimum(300 * inside, 300)) ** 2)[:, np.newaxis]]

    found = attribute(slopes_at, [np.zeros(1, np.float32)], [np.ones(1, np.float32)], 256)
    assert found.error <= ENOUGH
    assert sum(asked) < 4 * FIRST


def test_what_changes_nothing_has_no_error() -> None:
    def slopes_at(points: Any) -> Any:
        return np.full(len(points[0]), 5.0), [np.zeros_like(points[0])]

    found = attribute(slopes_at, [np.zeros(2, np.float32)], [np.ones(2, np.float32)], 32)
    assert (found.score, found.baseline, found.error) == (5.0, 5.0, 0.0)


def test_the_ends_are_the_rows_themselves_whatever_their_size() -> None:
    """The end of the path must not be computed from its start: in 32-bit floats, 1e10 + (3 - 1e10) is 0."""
    asked: list[np.ndarray] = []

    def slopes_at(points: Any) -> Any:
        asked.append(points[0].copy())
        return points[0][:, 0].astype(float), [np.ones_like(points[0])]

    start, end = np.array([1e10], np.float32), np.array([3], np.float32)
    found = attribute(slopes_at, [start], [end], 32)
    assert (found.baseline, found.score) == (1e10, 3)
    assert (asked[0][0], asked[0][-1]) == (start, end)


def test_slopes_that_are_not_finite_make_parts_that_are_no_numbers() -> None:
    def slopes_at(points: Any) -> Any:
        slopes = [np.full(one.shape, sign * np.inf) for one, sign in zip(points, (1, -1), strict=True)]
        return points[0][:, 0].astype(float), slopes

    start, end = np.zeros(2, np.float32), np.ones(2, np.float32)
    with np.errstate(invalid="ignore"):
        found = attribute(slopes_at, [start, start], [end, end], 32)
    assert np.isnan(found.error)


def test_points_of_large_rows_are_few() -> None:
    asked = 0

    def slopes_at(points: Any) -> Any:
        nonlocal asked
        asked += len(points[0])
        return points[0][:, 0].astype(float) ** 3, [np.zeros_like(points[0])]

    large = np.ones(3_000_000, np.float32)
    attribute(slopes_at, [0 * large], [large], 32)
    assert asked <= 12
