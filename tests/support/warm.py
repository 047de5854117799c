"""The fixture `trial` with one connection for each test module, for the tests of clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from trial import Trial


@pytest.fixture(scope="module")
def trial(database: str) -> Iterator[Trial]:
    """A Trial on a superuser's connection, which stays open for all tests of the module."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        connection.notices = []
        yield Trial(connection)
