"""Memory and log of a server stay as they were over twenty runs cancelled at random.

tests/faults/soak.py makes five hundred runs.
"""

from __future__ import annotations

import pytest

from harness import Harness
from soak import MOST_KB_PER_RUN, Soak

RUNS = 20


@pytest.mark.slow
def test_the_server_stays_as_it_was(harness: Harness) -> None:
    soak = Soak(harness.server, seed=5)
    for line in soak.play(RUNS):
        print(line)
    assert soak.runs == RUNS and soak.cancelled > RUNS // 4
    assert max(soak.shared_kb) == min(soak.shared_kb)
    # Code that is loaded once weighs more in so few runs, so the bound is ten times that of the long soak.
    assert max(soak.growth_kb) < 10 * MOST_KB_PER_RUN, soak.growth_kb
