"""The shuffle depends only on the rows' values and the seed, not on batches, row order or memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.packing.rows import labels, sorting
from cerebro_plpy.packing.rows.dealing import (
    ALL_SEGMENTS_BYTES,
    BUFFER_BYTES,
    Deal,
    deal_blocks,
    deal_picked,
    plan,
)
from cerebro_plpy.packing.rows.hashing import RowHash
from cerebro_plpy.packing.rows.labels import Classes, one_hot
from cerebro_plpy.packing.rows.sorting import Sorter


def hashes(features: np.ndarray, labels: Sequence[str | None], seed: int = 1, batch: int = 7) -> np.ndarray:
    hasher = RowHash(seed, [1, features.shape[1]])
    classes = Classes("y", seed)
    found = []
    for start in range(0, len(features), batch):
        rows = slice(start, start + batch)
        sums = hasher.sums(len(features[rows]))
        sums += classes.tokens(classes.codes(labels[rows]))
        hasher.add(sums, 1, features[rows])
        found.append(RowHash.finish(sums))
    return np.concatenate(found)


def some_rows(count: int, width: int = 5) -> tuple[np.ndarray, list[str | None]]:
    random = np.random.default_rng(3)
    return random.standard_normal((count, width)).astype("<f4"), [
        (None, "a", "b")[i] for i in random.integers(0, 3, count)
    ]


def test_hashes_do_not_depend_on_batches_or_on_the_order_of_rows() -> None:
    features, names = some_rows(100)
    whole = hashes(features, names, batch=100)
    for batch in (1, 3, 64):
        assert np.array_equal(hashes(features, names, batch=batch), whole)
    order = np.random.default_rng(0).permutation(100)
    assert np.array_equal(hashes(features[order], [names[i] for i in order]), whole[order])


def test_hashes_depend_on_seed_label_and_every_value() -> None:
    features, names = some_rows(50)
    first = hashes(features, names)
    assert not (hashes(features, names, seed=2) == first).any()
    assert not (hashes(features, ["c"] * 50) == first).any()
    for value in range(5):
        changed = features.copy()
        changed[:, value] = np.nextafter(changed[:, value], np.float32(9))
        assert not (hashes(changed, names) == first).any()


def test_rows_that_differ_in_signs_only_do_not_collide() -> None:
    numbers = np.arange(1 << 19)
    signs = (1 - 2 * (numbers[:, None] >> np.arange(19) & 1)).astype("<f4")
    found = hashes(signs, ["a"] * len(signs), batch=1 << 19)
    assert len(np.unique(found)) == len(signs)


def test_this_is_the_shuffle_for_ever() -> None:
    """The hashes must never change: every table would be dealt differently, and no run could be repeated."""
    features = np.array([[0, 1.5], [-2, 3e8]], "<f4")
    assert hashes(features, ["cat", None]).tolist() == [2976359814114607802, 14385941264772900349]


def sorted_rows(values: np.ndarray, budget: int, batch: int = 10) -> np.ndarray:
    """Return rows in the order of a Sorter, which sorts them by their first value instead of a hash."""
    sorter = Sorter([("<i4", 1), ("<f4", values.shape[1])], budget, batch)
    for start in range(0, len(values), batch):
        rows = values[start : start + batch]
        keys, (codes, features) = sorter.room(len(rows))
        keys[:] = rows[:, 0].astype(np.uint64)
        codes[:, 0] = rows[:, 0]
        features[:] = rows
        sorter.keep(len(rows))
    blocks = list(sorter.blocks())
    sorter.close()
    assert sorter.rows == len(values)
    assert all(np.array_equal(codes[:, 0], features[:, 0]) for codes, features in blocks)
    return np.concatenate([features for _, features in blocks])


@pytest.mark.parametrize("different", [1, 3, 40, 10**6])
@pytest.mark.parametrize("budget", [0, 500, 2000, 8000])
@pytest.mark.parametrize("batch", [1, 10, 37])
def test_spilled_rows_come_as_those_in_memory(different: int, budget: int, batch: int) -> None:
    keys = np.random.default_rng(different).integers(0, different, 500)
    values = np.repeat(keys[:, None], 3, axis=1).astype("<f4")
    in_memory = sorted_rows(values, 1 << 30, batch)
    assert np.array_equal(in_memory[:, 0], np.sort(values[:, 0]))
    assert np.array_equal(sorted_rows(values, budget, batch), in_memory)


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sorting.tempfile, "TemporaryFile", full)
    with pytest.raises(CerebroError, match="No space left") as caught:
        sorted_rows(np.zeros((100, 2), "<f4"), budget=0)
    assert caught.value.sqlstate == "58030"


@settings(deadline=None)
@given(st.integers(1, 400), st.integers(1, 9), st.integers(1, 50), st.integers(1, 70))
def test_every_row_is_dealt_once_and_evenly(rows: int, segments: int, most: int, block: int) -> None:
    how = plan(max(rows, segments), segments, row_bytes=4, most_rows=most)
    ranks = np.arange(how.rows)[:, None]
    blocks = [[ranks[start : start + block]] for start in range(0, how.rows, block)]
    # Rows that come block by block, and those that are in memory and can be picked.
    for buffers in (deal_blocks(blocks, how), deal_picked(lambda places, _: ranks[places], how)):
        dealt = [(buffer.segment, buffer.number, buffer.column(0).copy()) for buffer in buffers]
        for segment in range(segments):
            own = sorted((number, rows) for of, number, rows in dealt if of == segment)
            assert np.array_equal(np.concatenate([rows for _, rows in own]), ranks[segment::segments])
            sizes = [len(rows) for _, rows in own]
            assert max(sizes) - min(sizes) <= 1 and max(sizes) <= min(most, how.buffer_size) and min(sizes)
            assert [number for number, _ in own] == list(range(len(own)))


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 90), min_size=2, max_size=6),
    st.integers(1, 5),
    st.integers(1, 30),
    st.integers(1, 70),
)
def test_each_fold_is_dealt_as_if_there_were_no_other(
    folds: list[int], segments: int, most: int, block: int
) -> None:
    rows = sum(folds)
    how = plan(rows, segments, row_bytes=4, most_rows=most, folds=folds)
    ranks = np.arange(rows)[:, None]
    blocks = [[ranks[start : start + block]] for start in range(0, rows, block)]
    starts = np.cumsum([0, *folds])
    for buffers in (deal_blocks(blocks, how), deal_picked(lambda places, _: ranks[places], how)):
        dealt = {(buffer.segment, buffer.number): buffer.column(0)[:, 0].copy() for buffer in buffers}
        for segment in range(segments):
            slices = how.slices(segment)
            assert [number for of, number in sorted(dealt) if of == segment] == list(range(len(slices)))
            for fold, (start, end) in enumerate(zip(starts, starts[1:], strict=False), 1):
                own = [dealt[segment, n] for n, one in enumerate(slices) if one.fold == fold]
                assert np.concatenate([[], *own]).tolist() == list(range(start + segment, end, segments))
            places, positions = how.of_segments(np.arange(rows))
            whole = np.concatenate([[], *(dealt[segment, n] for n in range(len(slices)))])
            assert np.array_equal(whole[positions[places == segment]], np.flatnonzero(places == segment))


def test_buffers_stay_small_whatever_is_asked() -> None:
    assert plan(10**6, 2, row_bytes=4096, most_rows=None).buffer_size * 4096 <= BUFFER_BYTES
    assert plan(10**6, 2, row_bytes=4096, most_rows=10**6).buffer_size * 4096 <= BUFFER_BYTES
    assert plan(10**6, 64, row_bytes=4096, most_rows=None).buffer_size * 4096 * 64 <= ALL_SEGMENTS_BYTES
    assert plan(10, 2, row_bytes=1 << 30, most_rows=None) == Deal(10, 2, per_fold=5)
    assert plan(17, 1, row_bytes=4, most_rows=5).buffer_size == 5


def test_labels_get_codes_as_they_come_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MOST_CLASSES", 3)
    classes = Classes("y", 1)
    assert classes.codes(["b", None, "b", "a"]).tolist() == [0, 1, 0, 2]
    assert classes.labels == ["b", None, "a"]
    with pytest.raises(CerebroError, match='column "y" has more than'):
        classes.codes(["c"])


def test_one_hot_has_a_single_one_in_each_row() -> None:
    assert one_hot(np.array([2, 0]), 4).tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]
    assert one_hot(np.array([2, 0]), 4).dtype == np.dtype("<i2")
