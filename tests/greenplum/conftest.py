"""Fixtures for the tests of Greenplum."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trial import Trial
from warm import trial

__all__ = ["the_coordinator_lives_on", "trial"]


@pytest.fixture
def the_coordinator_lives_on(trial: Trial) -> Iterator[None]:
    """Check that the coordinator has not restarted by the end of the test: a restart ends all sessions."""
    started = trial.value("SELECT pg_postmaster_start_time()")
    yield
    assert trial.value("SELECT pg_postmaster_start_time()") == started
