"""The choice of frozen layers that a run computes once saves most within the budget, or is empty."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from cerebro_plpy.planner.cuts import LayerCost, TrunkChoice, Use, candidates

USE = Use(operations=1e7, passes=80, batch_sizes=1, rows=1000, budget_bytes=2**31)


def layer(name: str, sources: list[int], operations: float, numbers: int, leaves: bool = False) -> LayerCost:
    return LayerCost(name, sources, leaves, {"dense": operations}, numbers)


CHAIN = [
    layer("in", [], 0, 100),
    layer("a", [0], 1e6, 1000),
    layer("b", [1], 5e6, 5000),
    layer("c", [2], 1e6, 50, leaves=True),
]


def first(trunk: list[LayerCost], use: Use = USE) -> TrunkChoice:
    return candidates(trunk, use)[0]


def test_the_deepest_layer_that_fits_is_kept() -> None:
    assert first(CHAIN).leaving == ["c"]
    assert first(CHAIN).operations == 7e6
    wide = [*CHAIN[:3], replace(CHAIN[3], numbers=9000)]
    assert first(wide, replace(USE, budget_bytes=25_000_000)).leaving == ["b"]
    assert candidates(wide, replace(USE, budget_bytes=3_000_000)) == []


def test_each_size_of_batch_takes_its_own_room() -> None:
    assert first(CHAIN, replace(USE, budget_bytes=200_000)).leaving == ["c"]
    assert candidates(CHAIN, replace(USE, budget_bytes=200_000, batch_sizes=2)) == []


def test_other_candidates_end_before_the_first() -> None:
    assert [one.leaving for one in candidates(CHAIN, USE)] == [["c"], ["b"]]


def test_what_saves_little_is_not_kept() -> None:
    assert candidates(CHAIN, replace(USE, passes=2)) == []
    assert candidates(CHAIN, replace(USE, operations=1e9)) == []
    assert candidates([], USE) == []


@pytest.mark.parametrize("seed", range(20))
def test_no_other_choice_within_the_budget_saves_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    trunk = [layer("0", [], 0, 10)]
    for place in range(1, 9):
        sources = sorted({int(one) for one in rng.integers(0, place, 2)})
        operations, numbers = float(rng.integers(0, 9)) * 1e6, int(rng.integers(1, 2000))
        trunk.append(layer(str(place), sources, operations, numbers, bool(rng.integers(0, 2))))
    use = replace(USE, operations=1e8, passes=10**6, budget_bytes=int(rng.integers(1, 6)) * 10**6)
    best = 0.0
    for inside in product([False, True], repeat=len(trunk)):
        closed = all(inside[s] for n, one in enumerate(trunk) if inside[n] for s in one.sources)
        leaving = [
            n for n, one in enumerate(trunk)
            if inside[n] and (one.leaves or any(n in o.sources for m, o in enumerate(trunk) if not inside[m]))
        ]  # fmt: skip
        size = sum(4 * trunk[n].numbers for n in leaving)
        if closed and inside[0] and size * use.rows <= use.budget_bytes:
            best = max(best, sum(trunk[n].operations for n in range(len(trunk)) if inside[n]))
    found = candidates(trunk, replace(use, operations=best or 1.0))
    assert (found[0].operations if found else 0.0) == best
