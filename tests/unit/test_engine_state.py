from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy import errors
from cerebro_plpy.engine.state import (
    OPTIMIZER,
    OTHER,
    WEIGHT,
    State,
    averaged,
    finder,
    from_parts,
    frozen_to_parts,
    to_parts,
    weights,
    whole,
)
from cerebro_plpy.errors import CerebroError


def make(size: int = 1000) -> State:
    rng = np.random.default_rng(3)
    arrays = [
        rng.normal(size=(size, 3)).astype(np.float32),
        np.array([1, 2], np.uint32),
        np.array(7, np.int64),
        rng.normal(size=5).astype(np.float16),
        np.empty((0, 4), np.float32),
    ]
    kinds = [WEIGHT, OTHER, OPTIMIZER, WEIGHT, OPTIMIZER]
    return State(["kernel", "seed", "iterations", "bias", "none"], arrays, kinds, [3, 0], 7, True)


def assert_equal(one: State, other: State) -> None:
    fields = ("names", "kinds", "weight_order", "step", "fixed_batch")
    assert [getattr(one, f) for f in fields] == [getattr(other, f) for f in fields]
    for a, b in zip(one.arrays, other.arrays, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("part_bytes", [64, 300, 4096, 1 << 26])
def test_a_state_comes_back_from_its_parts(part_bytes: int) -> None:
    parts = list(to_parts(make(), part_bytes))
    assert max(map(len, parts)) <= part_bytes + 32
    assert_equal(from_parts(parts), make())
    assert_equal(from_parts(memoryview(part) for part in parts), make())


def test_arrays_that_came_back_can_be_written() -> None:
    state = from_parts(to_parts(make()))
    state.arrays[0][0, 0] = 5
    assert state.arrays[0][0, 0] == 5


def test_weights_are_float32_in_the_order_of_get_weights() -> None:
    state = make(2)
    expected = np.concatenate([state.arrays[3].astype(np.float32), state.arrays[0].ravel()])
    assert weights(state) == expected.tobytes()


def test_arrays_that_are_not_contiguous_are_written_in_order() -> None:
    state = make()
    state.arrays[0] = np.asfortranarray(state.arrays[0])
    assert_equal(from_parts(to_parts(state)), make())


def damaged_in_all_ways() -> dict[str, list[bytes]]:
    parts = list(to_parts(make(), 4096))
    flipped = bytearray(parts[1])
    flipped[100] ^= 1
    return {
        "no parts": [],
        "one missing in the middle": [parts[0], *parts[2:]],
        "the last missing": parts[:-1],
        "one twice": [parts[0], parts[0], *parts[1:]],
        "out of order": [parts[1], parts[0], *parts[2:]],
        "one too many": [*parts, list(to_parts(make(10_000), 4096))[len(parts)]],
        "a bit flipped": [parts[0], bytes(flipped), *parts[2:]],
        "cut short": [*parts[:-1], parts[-1][:-1]],
        "empty": [b""],
        "foreign": [b"\x89HDF\r\n\x1a\n" * 100],
    }


@pytest.mark.parametrize("case", damaged_in_all_ways())
def test_damage_is_found(case: str) -> None:
    with pytest.raises(CerebroError) as caught:
        from_parts(damaged_in_all_ways()[case])
    assert caught.value.sqlstate == errors.DATA_CORRUPTED


def test_every_flipped_byte_is_found() -> None:
    (part,) = to_parts(make(2))
    for position in range(len(part)):
        broken = bytearray(part)
        broken[position] ^= 0x10
        with pytest.raises(CerebroError):
            from_parts([broken])


@pytest.mark.slow
def test_a_state_over_one_gigabyte() -> None:
    big = np.zeros(280_000_000, np.float32)
    big[::1_000_003] = 1
    state = State(["big"], [big], [WEIGHT], [0], 1)
    np.testing.assert_array_equal(from_parts(to_parts(state)).arrays[0], big)


def test_states_are_averaged_by_rows_and_counters_go_on_from_the_largest() -> None:
    first, second, empty = make(), make(), make()
    second.arrays[0] = second.arrays[0] * 3
    second.arrays[1] = np.array([8, 9], np.uint32)
    second.arrays[2] = np.array(9, np.int64)
    empty.arrays[0] = empty.arrays[0] * np.nan
    found = averaged([first, second, empty], [30, 10, 0])
    np.testing.assert_allclose(found.arrays[0], make().arrays[0] * 1.5, rtol=1e-6)
    np.testing.assert_array_equal(found.arrays[1], first.arrays[1])
    assert found.arrays[2] == 9
    assert [array.dtype for array in found.arrays] == [array.dtype for array in first.arrays]
    assert_equal(averaged([first, second], [1, 0]), first)
    assert_equal(averaged([first, second], [0, 0]), first)


def test_the_order_of_states_that_are_averaged_is_that_of_segments() -> None:
    rng = np.random.default_rng(5)
    several = [make() for _ in range(3)]
    for state in several:
        state.arrays[0] = rng.normal(size=(1000, 3)).astype(np.float32)
    assert_equal(averaged(several, [3, 4, 5]), averaged(several, [3, 4, 5]))


def test_what_is_frozen_is_stored_once_and_comes_back() -> None:
    state, stored = make(), {}
    state.freeze([0, 3])
    assert state.frozen is not None
    stored[state.frozen.digest] = list(frozen_to_parts(state.frozen))
    read = []

    def parts(digest: str) -> list[bytes]:
        read.append(digest)
        return stored[digest]

    find = finder(parts)
    found = [from_parts(to_parts(state), find) for _ in range(3)]
    assert len(read) == 1
    for one in found:
        assert_equal(one, make())
        assert one.arrays[0] is found[0].arrays[0]
    assert sum(map(len, to_parts(state))) < 1000 < sum(map(len, to_parts(whole(state))))
    assert_equal(from_parts(to_parts(whole(state))), make())


def test_frozen_weights_that_are_gone_or_others_are_damage() -> None:
    state, other = make(), make(500)
    state.freeze([0, 3])
    other.freeze([0, 3])
    assert state.frozen is not None and other.frozen is not None
    parts, wrong = list(to_parts(state)), list(frozen_to_parts(other.frozen))
    for find in (finder(lambda digest: []), finder(lambda digest: wrong)):
        with pytest.raises(CerebroError, match="damaged"):
            from_parts(parts, find)
    with pytest.raises(CerebroError, match="damaged"):
        from_parts(parts)


def test_an_average_leaves_frozen_weights_as_they_are() -> None:
    one, other = make(), make()
    for state in (one, other):
        state.freeze([0, 3])
    other.arrays[1] = other.arrays[1] + 1
    made = averaged([one, other], [3, 7])
    assert made.frozen is one.frozen and made.frozen_places == (0, 3)
    assert made.arrays[0] is one.arrays[0]
