"""One warm connection for each module, as for the common tests: what tests of a cluster's own use."""

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
