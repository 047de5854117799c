"""Twenty rounds of the fault harness, every kind of fault at least once; `make faults` plays two hundred."""

from __future__ import annotations

import pytest

import kinds
from harness import Harness

ROUNDS = 20


def test_every_kind_has_its_round(harness: Harness) -> None:
    offered = harness.offered()
    assert {kind.name for kind in harness.plan(ROUNDS)} == {kind.name for kind in offered}
    # Without the right to mount file systems three kinds less can be made; never fewer.
    assert len(offered) >= len(kinds.EVERY) - 2


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_nothing_is_lost(harness: Harness, number: int) -> None:
    played = harness.round(number, harness.plan(ROUNDS)[number - 1])
    print(played)
    assert played.bits == harness.references[played.backend].bits
