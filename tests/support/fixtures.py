"""Types of the fixtures in tests/conftest.py, and helpers that run SQL for tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg2.extensions
from psycopg2.sql import Composable

Connection = psycopg2.extensions.connection
Rows = list[tuple[Any, ...]]
# The ports of a Citus cluster's workers, where the server at hand is its coordinator (tools/citus).
CITUS_WORKERS = os.environ.get("CEREBRO_CITUS_WORKERS", "").split()
# True on Greenplum and products derived from it, false on PostgreSQL.
IS_GREENPLUM = "SELECT current_setting('gp_role', true) IS NOT NULL"


def execute(connection: Connection, query: str | Composable, *values: object) -> Rows:
    """Run one statement and return the rows of its result; an empty list if it has no result."""
    with connection.cursor() as cursor:
        cursor.execute(query, values or None)
        # Rows may have no columns: SELECT FROM asks only how many there are.
        return cursor.fetchall() if cursor.description is not None else []


@contextmanager
def setting(sql: Callable[..., object], name: str, value: str) -> Iterator[None]:
    """Insert a row into `cerebro.settings` by `sql`, and delete it at the end of the block."""
    sql("INSERT INTO cerebro.settings VALUES (%s, %s)", name, value)
    try:
        yield
    finally:
        sql("DELETE FROM cerebro.settings WHERE name = %s", name)


class Connect(Protocol):
    """A function that opens a connection to the test module's database."""

    def __call__(self, *, user: str | None = None, autocommit: bool = True) -> Connection: ...


class Sql(Protocol):
    """A function that runs one statement on `db`, or on the connection `on`, and returns the rows."""

    def __call__(self, query: str | Composable, *values: object, on: Connection | None = None) -> Rows: ...


class MakeRole(Protocol):
    """A function that creates a login role and returns its name; `usage` grants the use of cerebro."""

    def __call__(self, *, usage: bool = True) -> str: ...
