"""CREATE EXTENSION, DROP EXTENSION, CREATE EXTENSION again, and the extension cerebro_madlib."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import psycopg2
import psycopg2.errors
import pytest

from fixtures import Connection, Rows, execute

Bare = Callable[..., Rows]
EVERYTHING = """
SELECT 'schema', nspname::text FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_'
UNION ALL SELECT 'relation', oid::regclass::text FROM pg_class
    WHERE relnamespace::regnamespace::text !~ '^pg_(toast|temp)'
UNION ALL SELECT 'function', oid::regprocedure::text FROM pg_proc
UNION ALL SELECT 'type', oid::regtype::text FROM pg_type
    WHERE typnamespace::regnamespace::text !~ '^pg_(toast|temp)'
UNION ALL SELECT 'initial privilege', objoid::text FROM pg_init_privs
UNION ALL SELECT 'comment', description FROM pg_description
UNION ALL SELECT 'extension', extname FROM pg_extension
ORDER BY 1, 2
"""


@pytest.fixture
def bare(empty_database: str) -> Iterator[Connection]:
    """A connection to a database without the extension; after the test, the extension is dropped there."""
    with closing(psycopg2.connect(dbname=empty_database)) as connection:
        connection.autocommit = True
        yield connection
        with connection.cursor() as cursor:
            cursor.execute("DROP EXTENSION IF EXISTS cerebro CASCADE; DROP SCHEMA IF EXISTS madlib CASCADE")


@pytest.fixture
def on_bare(bare: Connection) -> Bare:
    return partial(execute, bare)


def test_drop_leaves_nothing_and_create_works_again(on_bare: Bare) -> None:
    on_bare("CREATE EXTENSION plpython3u")
    before = on_bare(EVERYTHING)
    for _ in range(2):
        on_bare("CREATE EXTENSION cerebro")
        on_bare("SELECT cerebro._boot()")
        assert on_bare(EVERYTHING) != before
        on_bare("DROP EXTENSION cerebro")
        assert on_bare(EVERYTHING) == before


def test_a_session_loads_no_library_before_it_needs_one(on_bare: Bare) -> None:
    on_bare("CREATE EXTENSION cerebro CASCADE")
    on_bare("SELECT cerebro._boot()")
    on_bare(
        "DO LANGUAGE plpython3u $$ import sys;"
        " loaded = {'numpy', 'psycopg2', 'keras', 'tensorflow', 'jax'} & set(sys.modules);"
        " assert not loaded, loaded $$"
    )


def test_cascade_brings_the_language(on_bare: Bare) -> None:
    on_bare("DROP EXTENSION IF EXISTS plpython3u CASCADE")
    on_bare("CREATE EXTENSION cerebro CASCADE")
    assert on_bare("SELECT count(*) FROM pg_extension WHERE extname = 'plpython3u'") == [(1,)]


def test_a_schema_of_somebody_else_is_not_taken_over(on_bare: Bare) -> None:
    on_bare("CREATE SCHEMA cerebro")
    try:
        with pytest.raises(psycopg2.errors.DuplicateSchema):
            on_bare("CREATE EXTENSION cerebro CASCADE")
    finally:
        on_bare("DROP SCHEMA cerebro")


def test_madlibs_schema_has_the_same_functions(on_bare: Bare) -> None:
    on_bare("CREATE EXTENSION cerebro_madlib CASCADE")
    signatures = """SELECT p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
        obj_description(p.oid, 'pg_proc') FROM pg_proc AS p WHERE pronamespace = %s::regnamespace
        AND prokind = 'f' AND proname NOT LIKE '\\_%%' AND proname <> ALL (%s) ORDER BY 1, 2"""
    # Functions that only administrators call are in schema cerebro alone.
    own = [f"{do}_{what}" for what in ("usage", "function") for do in ("grant", "revoke")]
    own += ["distribute", "register_function", "unregister_function"]
    assert on_bare(signatures, "madlib", own) == on_bare(signatures, "cerebro", own)
    on_bare("DROP EXTENSION cerebro_madlib")
    assert on_bare("SELECT to_regnamespace('madlib')") == [(None,)]


def test_madlib_itself_is_left_alone(on_bare: Bare) -> None:
    on_bare("CREATE SCHEMA madlib")
    with pytest.raises(psycopg2.errors.DuplicateSchema) as caught:
        on_bare("CREATE EXTENSION cerebro_madlib CASCADE")
    assert 'schema "madlib" exists already' in str(caught.value)
    assert "HINT:  Call the functions in schema cerebro" in str(caught.value)


def test_missing_packages_are_named_with_the_command_that_brings_them(on_bare: Bare) -> None:
    on_bare("CREATE EXTENSION cerebro CASCADE")
    (definition,) = on_bare("SELECT pg_get_functiondef('cerebro._boot()'::regprocedure)")[0]
    elsewhere = re.sub(r'site = "(.*?)", ".*?"', r'site = "\1", "/nowhere/site-packages"', str(definition))
    assert elsewhere != definition
    on_bare(elsewhere)
    with pytest.raises(psycopg2.Error) as caught:
        on_bare("SELECT cerebro._boot()")
    message = str(caught.value)
    assert "keras" in message.splitlines()[0]
    assert re.search(
        r"HINT:.*python3\.\d+ -m pip install --require-hashes --target=/nowhere/site-packages -r /", message
    )
    assert caught.value.pgcode == "58P01"
