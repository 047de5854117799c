"""A label that jumps between values of a number is told apart from one that changes smoothly or by chance."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy.features.facts import LabelByValue

ROWS = 4000


def quantities(x: np.ndarray, y: np.ndarray) -> LabelByValue:
    values = np.unique(x)
    parts = [y[x == value] for value in values]
    return LabelByValue.from_quantities(
        [(float(v), len(p), float(p.mean()), float(p.var())) for v, p in zip(values, parts, strict=True)]
    )


def classes(x: np.ndarray, y: np.ndarray) -> LabelByValue:
    pairs, counts = np.unique(np.stack([x, y]), axis=1, return_counts=True)
    return LabelByValue.from_classes(
        [(float(v), str(k), int(n)) for (v, k), n in zip(pairs.T, counts, strict=True)]
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("many", [30, 800])
def test_what_is_smooth_or_noise_does_not_jump(seed: int, many: int) -> None:
    random = np.random.default_rng(seed)
    x = random.integers(0, many, ROWS)
    for smooth in (0 * x, 5 * x / many, 3 * np.sin(6 * x / many), (x / many > 0.5) * 1.0):
        y = smooth + random.normal(size=ROWS)
        assert not quantities(x, y).jumps
        assert not classes(x, np.digitize(y, [-1, 0, 1])).jumps


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("many", [30, 800])
def test_what_each_value_settles_by_itself_jumps(seed: int, many: int) -> None:
    random = np.random.default_rng(seed)
    x = random.integers(0, many, ROWS)
    own = 1.5 * random.normal(size=many)[x]
    y = own + random.normal(size=ROWS)
    assert quantities(x, y).jumps
    assert classes(x, np.digitize(y, [-1, 0, 1])).jumps
    assert quantities(x, own).jumps and classes(x, (own > 0).astype(int)).jumps


def test_columns_are_alike_if_they_divide_the_rows_alike() -> None:
    """In a balanced table, stores and products have as many rows each, and divide the rows otherwise."""
    store, product = np.arange(ROWS) % 40, np.arange(ROWS) // 100
    y = np.random.default_rng(1).normal(size=ROWS)
    for measure, label in ((quantities, y), (classes, (y > 0).astype(int))):
        miles = measure(store, label).division
        assert miles == measure(store * -1.6, label).division
        assert miles != measure(product, label).division
        assert (measure(store, label).rows == measure(product, label).rows).all()


def test_few_values_or_few_rows_for_each_do_not_jump() -> None:
    x = np.arange(60) % 20
    assert not quantities(x, x * 7919.0 % 101).jumps
    x = np.arange(100) // 2
    assert not quantities(x, x * 7919.0 % 101).jumps
    assert not LabelByValue.from_quantities([]).jumps and not LabelByValue.from_classes([]).jumps
