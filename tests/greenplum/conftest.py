"""One warm connection for each module, as for the common tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from trial import Trial


@pytest.fixture(scope="module")
def trial(database: str) -> Iterator[Trial]:
    """Jobs on a superuser's connection that lives as long as the module."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        connection.notices = []
        yield Trial(connection)


@pytest.fixture
def the_coordinator_lives_on(trial: Trial) -> Iterator[None]:
    """Also the sessions of others, as this one."""
    started = trial.value("SELECT pg_postmaster_start_time()")
    yield
    assert trial.value("SELECT pg_postmaster_start_time()") == started
