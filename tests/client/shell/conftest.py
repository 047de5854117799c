"""A database for each module: what is looked at here is all that is in one, and how it is set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from fixtures import execute


@pytest.fixture(scope="module")
def database(template: str, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"cerebro_{request.path.stem}_{os.getpid()}"
    with closing(psycopg2.connect(dbname="postgres")) as connection:
        connection.autocommit = True
        execute(connection, f"CREATE DATABASE {name} TEMPLATE {template}")
        yield name
        execute(connection, f"DROP DATABASE {name} WITH (FORCE)")
