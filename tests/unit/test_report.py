"""How progress messages format durations."""

from __future__ import annotations

import pytest

from cerebro_plpy.executor.running.report import duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (9.9, "9.9 s"),
        (9.96, "10 s"),
        (99.4, "99 s"),
        (99.6, "2 min"),
        (14708, "4 h 5 min"),
        (3599, "1 h 0 min"),
    ],
)
def test_a_duration_is_said_in_what_one_counts_it_in(seconds: float, said: str) -> None:
    assert duration(seconds) == said
