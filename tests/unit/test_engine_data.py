from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy.engine.models.data import (
    BINARY,
    DENSE,
    INDEX,
    ONE_HOT,
    SPARSE,
    VALUE,
    WEIGHT,
    Block,
    Dataset,
    Target,
    TargetForm,
    batched,
    convert,
)

LABELS = np.array([2, 0, 1, 2])
HOT = Target(np.eye(3, dtype=np.int16)[LABELS], ONE_HOT)
INDICES = Target(LABELS.astype(np.int32), INDEX)


@pytest.mark.parametrize("target", [HOT, INDICES])
def test_labels_serve_every_loss(target: Target) -> None:
    sparse = convert(target, TargetForm(SPARSE, 3))
    assert (sparse.dtype, sparse.tolist()) == (np.int32, [2, 0, 1, 2])
    dense = convert(target, TargetForm(DENSE, 3))
    assert dense.dtype == np.float32
    np.testing.assert_array_equal(dense, np.eye(3)[LABELS])


def test_two_classes_serve_one_column() -> None:
    target = Target(np.array([[1, 0], [0, 1]], np.int16), ONE_HOT)
    assert convert(target, TargetForm(BINARY, 1)).tolist() == [[0.0], [1.0]]


def test_values_stay_as_they_are() -> None:
    target = Target(np.array([[0.5], [1.5]], np.float32), VALUE)
    np.testing.assert_array_equal(convert(target, TargetForm(BINARY, 1)), target.values)


def test_conversions_are_kept() -> None:
    dataset = Dataset([np.zeros((4, 2), np.float32)], [HOT])
    assert dataset.target(0, TargetForm(SPARSE, 3)) is dataset.target(0, TargetForm(SPARSE, 3))


def test_class_weights_leave_other_classes_at_one() -> None:
    dataset = Dataset([np.zeros((4, 2), np.float32)], [HOT])
    (weights,) = dataset.sample_weights([{2: 3.0}])
    assert weights.tolist() == [3.0, 1.0, 1.0, 3.0]


def test_a_rows_own_weight_is_multiplied_with_its_classs() -> None:
    own = np.array([[0.5], [1], [2], [4]], np.float32)
    dataset = Dataset([np.zeros((4, 2), np.float32)], [HOT, Target(own, WEIGHT)])
    (alone,), (both,) = dataset.sample_weights(None), dataset.sample_weights([{2: 3.0}])
    assert alone.tolist() == [0.5, 1.0, 2.0, 4.0]
    assert both.tolist() == [1.5, 1.0, 2.0, 12.0]


def test_each_output_has_weights_of_its_own() -> None:
    dataset = Dataset([np.zeros((4, 2), np.float32)], [HOT, HOT])
    first, second = dataset.sample_weights([None, {0: 2.0}])
    assert first.tolist() == [1.0] * 4
    assert second.tolist() == [1.0, 2.0, 1.0, 1.0]
    assert dataset.sample_weights(None) == []


def numbered(first: int, last: int) -> Dataset:
    rows = np.arange(first, last)
    return Dataset([rows.astype(np.float32)[:, None]], [Target(rows.astype(np.int32), INDEX)])


@pytest.mark.parametrize("sizes", [[10], [3, 4, 3], [1] * 10, [5, 5], [0, 10], [9, 1], [2, 0, 8]])
@pytest.mark.parametrize("batch_size", [1, 3, 4, 5, 10, 16])
def test_batches_cross_the_borders_of_blocks(sizes: list[int], batch_size: int) -> None:
    ends = np.cumsum(sizes)
    blocks = [
        Block(numbered(end - size, end), np.arange(size)[::-1]) for end, size in zip(ends, sizes, strict=True)
    ]
    seen = [block.dataset.inputs[0][block.order, 0] for block in batched(blocks, batch_size)]
    assert all(len(rows) % batch_size == 0 for rows in seen[:-1])
    expected = np.concatenate([np.arange(e - s, e)[::-1] for e, s in zip(ends, sizes, strict=True)])
    np.testing.assert_array_equal(np.concatenate(seen), expected)
