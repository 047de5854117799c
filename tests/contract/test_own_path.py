"""A call works with the extension's search_path, and afterwards the caller's search_path is as before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from fixtures import Connection, execute

CALL = "cerebro.training_preprocessor_dl('{}', 'rows_packed', 'y', 'x')"
PACK, PERFORM = "SELECT " + CALL.format("rows"), "PERFORM " + CALL.format("rows")
NO_TABLE = CALL.format("none")
SHOWN = [("there, elsewhere",)]


@pytest.fixture
def caller(database: str) -> Iterator[Connection]:
    """A session with two schemas on its search_path and a table in the second."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        execute(
            connection,
            "CREATE SCHEMA there; CREATE SCHEMA elsewhere;"
            "CREATE TABLE elsewhere.rows AS SELECT ARRAY[i, i]::real[] AS x, i % 2 AS y"
            " FROM generate_series(1, 20) AS i; SET search_path = there, elsewhere",
        )
        yield connection
        execute(connection, "ROLLBACK; DROP SCHEMA there, elsewhere CASCADE")


def test_tables_are_found_and_made_where_the_caller_looks(caller: Connection) -> None:
    execute(caller, PACK)
    assert execute(caller, "SELECT to_regclass('there.rows_packed') IS NOT NULL") == [(True,)]
    assert execute(caller, "SHOW search_path") == SHOWN


def test_a_path_that_is_set_for_a_transaction_lasts_as_long(caller: Connection) -> None:
    execute(caller, "SET search_path = pg_catalog")
    execute(caller, "BEGIN; SET LOCAL search_path = there, elsewhere")
    execute(caller, PACK)
    assert execute(caller, "SHOW search_path") == SHOWN
    execute(caller, "COMMIT")
    assert execute(caller, "SHOW search_path") == [("pg_catalog",)]


def test_a_path_that_is_set_before_the_call_in_its_transaction_stays(caller: Connection) -> None:
    execute(caller, "SET search_path = pg_catalog")
    execute(caller, "BEGIN; SET search_path = there, elsewhere")
    execute(caller, PACK)
    execute(caller, "COMMIT")
    assert execute(caller, "SHOW search_path") == SHOWN


def test_an_error_leaves_the_callers_path(caller: Connection) -> None:
    execute(caller, "BEGIN; SAVEPOINT before")
    with pytest.raises(psycopg2.Error, match="'none' does not exist"):
        execute(caller, f"SELECT {NO_TABLE}")
    execute(caller, "ROLLBACK TO before")
    assert execute(caller, "SHOW search_path") == SHOWN
    execute(
        caller,
        f"DO $$BEGIN PERFORM {NO_TABLE}; EXCEPTION WHEN undefined_table THEN NULL; END$$",
    )
    assert execute(caller, "SHOW search_path") == SHOWN
    execute(caller, "COMMIT")
    assert execute(caller, "SHOW search_path") == SHOWN


def test_a_function_with_a_path_of_its_own_looks_there(caller: Connection) -> None:
    execute(
        caller,
        "CREATE FUNCTION there.pack() RETURNS text LANGUAGE plpgsql SET search_path = elsewhere AS"
        f" $$BEGIN {PERFORM}; RETURN current_setting('search_path'); END$$",
    )
    assert execute(caller, "SELECT there.pack()") == [("elsewhere",)]
    assert execute(caller, "SELECT to_regclass('elsewhere.rows_packed') IS NOT NULL") == [(True,)]
    assert execute(caller, "SHOW search_path") == SHOWN
