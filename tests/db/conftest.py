"""One warm connection for each module: a new one would import TensorFlow again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from fixtures import Connection, execute
from steering import Run
from trial import Trial


@pytest.fixture(scope="module")
def trial(database: str) -> Iterator[Trial]:
    """Jobs on a superuser's connection that lives as long as the module."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        connection.notices = []
        yield Trial(connection)


@pytest.fixture
def run(trial: Trial, db: Connection) -> Iterator[Run]:
    """A run that a person steers; what still goes on at the end is cancelled."""
    made = Run(trial, db)
    yield made
    if made.call is not None and not made.call.done():
        execute(db, "SELECT pg_cancel_backend(%s)", trial.connection.info.backend_pid)
