"""Rounds of the fault harness: a few in quick tests; with the slow tests, every kind of fault.

`make faults` plays two hundred rounds.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kinds
from harness import Harness

ROUNDS = 24
QUICK_ROUNDS = 4


def test_every_kind_has_its_round(harness: Harness) -> None:
    offered = harness.offered()
    assert {kind.name for kind in harness.plan(ROUNDS)} == {kind.name for kind in offered}
    # Only the two kinds of fault that need to mount file systems may be missing.
    assert len(offered) >= len(kinds.EVERY) - 2


@pytest.fixture
def short(harness: Harness) -> Iterator[Harness]:
    with harness.short():
        yield harness


@pytest.mark.parametrize(
    "number",
    [
        *range(1, QUICK_ROUNDS + 1),
        *(pytest.param(number, marks=pytest.mark.slow) for number in range(QUICK_ROUNDS + 1, ROUNDS + 1)),
    ],
)
def test_nothing_is_lost(short: Harness, number: int) -> None:
    play(short, number)


@pytest.fixture(scope="module")
def full(harness: Harness) -> Harness:
    harness.refer_to("tensorflow")
    return harness


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("number", range(ROUNDS + 1, 2 * ROUNDS + 1))
def test_nothing_is_lost_by_several_sessions(full: Harness, number: int) -> None:
    play(full, number)


def play(harness: Harness, number: int) -> None:
    played = harness.round(number, harness.plan(2 * ROUNDS)[number - 1])
    print(played)
    assert played.bits == harness.reference(played.kind.job, played.backend).left.bits
