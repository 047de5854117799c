"""Types of the fixtures in tests/conftest.py, for annotations, and the one way to run a statement."""

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
# What Greenplum and its heirs have, and PostgreSQL has not.
IS_GREENPLUM = "SELECT current_setting('gp_role', true) IS NOT NULL"


def execute(connection: Connection, query: str | Composable, *values: object) -> Rows:
    """Run one statement and give its rows, if it has any."""
    with connection.cursor() as cursor:
        cursor.execute(query, values or None)
        # Rows may have no columns: SELECT FROM asks only how many there are.
        return cursor.fetchall() if cursor.description is not None else []


@contextmanager
def setting(sql: Callable[..., object], name: str, value: str) -> Iterator[None]:
    """Have a setting of the database for a while; `sql` runs a statement there."""
    sql("INSERT INTO cerebro.settings VALUES (%s, %s)", name, value)
    try:
        yield
    finally:
        sql("DELETE FROM cerebro.settings WHERE name = %s", name)


class Connect(Protocol):
    """Open a connection to the test module's database."""

    def __call__(self, *, user: str | None = None, autocommit: bool = True) -> Connection: ...


class Sql(Protocol):
    """Run one statement on `db`, or on the connection given as `on`, and give its rows."""

    def __call__(self, query: str | Composable, *values: object, on: Connection | None = None) -> Rows: ...


class MakeRole(Protocol):
    """Make a login role that may use cerebro, or may not with usage=False."""

    def __call__(self, *, usage: bool = True) -> str: ...
