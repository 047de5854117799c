"""Every public function inside every kind of query answers or refuses, and the coordinator never restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import psycopg2
import pytest

from fixtures import Connection, execute
from trial import Trial

pytestmark = [pytest.mark.greenplum, pytest.mark.usefixtures("the_coordinator_lives_on")]

# Queries with a call of a function: {f} is an expression and {t} an item of FROM, both with the column a of
# each row as first argument; {g} is an expression with max(a) as first argument.
QUERIES = {
    "of an aggregate": "SELECT {g} FROM many",
    "of an aggregate over a replicated table": "SELECT {g} FROM whole",
    "of an aggregate over a join": "SELECT {g} FROM many JOIN other USING (b)",
    "of an aggregate over a view": "SELECT {g} FROM (SELECT run_id AS a FROM cerebro.runs) AS r",
    "beside an aggregate": "SELECT {g}, count(*) FROM many GROUP BY b ORDER BY 2",
    "for each row": "SELECT {f} FROM many",
    "for each row in order": "SELECT {f} FROM many ORDER BY a",
    "for each row of a replicated table": "SELECT {f} FROM whole",
    "over an ordered subquery": "SELECT {f} FROM (SELECT a FROM many ORDER BY a LIMIT 3) AS r",
    "over distinct rows": "SELECT {f} FROM (SELECT DISTINCT b AS a FROM many) AS r",
    "over a join": "SELECT {f} FROM many AS m JOIN other USING (b) WHERE m.a > 0",
    "beside rows": "SELECT count(*) FROM many, LATERAL {t} AS f",
    "beside replicated rows": "SELECT count(*) FROM whole, LATERAL {t} AS f",
    "beside runs": "SELECT count(*) FROM (SELECT run_id AS a FROM cerebro.runs) AS r, LATERAL {t} AS f",
    "under a condition": "SELECT count(*) FROM many WHERE EXISTS (SELECT FROM {t} AS f)",
    "in a subquery": "SELECT (SELECT {g} FROM many LIMIT 1)",
    "in a subquery for each row": "SELECT (SELECT count(*) FROM {t} AS f) FROM many",
    "in a common table expression": "WITH r AS (SELECT {f} FROM many) SELECT count(*) FROM r",
    "in an array": "SELECT ARRAY(SELECT 1 FROM many, LATERAL {t} AS f)",
    "in a new table": "CREATE TEMP TABLE made AS SELECT 1 AS one FROM many, LATERAL {t} AS f",
    "in a new table of aggregates": "CREATE TEMP TABLE made AS SELECT 1 FROM (SELECT {g} FROM many) AS r",
    "in rows that are inserted": "INSERT INTO other SELECT 1, 1 FROM many, LATERAL {t} AS f",
    "in rows that are removed": "DELETE FROM other WHERE EXISTS (SELECT FROM many, LATERAL {t} AS f)",
    "in a union": "SELECT a FROM many UNION ALL SELECT 1 FROM whole, LATERAL {t} AS f",
    "in a loop": "DO $$ DECLARE r record; BEGIN FOR r IN SELECT a FROM many LOOP PERFORM 1 FROM"
    " (SELECT r.a AS a) AS s, LATERAL {t} AS f; END LOOP; END $$",
}
# A procedure cannot stand in a query.
_FUNCTIONS = """
SELECT p.proname, p.proargtypes::regtype[]::text[], p.pronargs - p.pronargdefaults
FROM cerebro._usage_functions() AS f
JOIN pg_proc AS p ON p.oid = f AND p.prokind <> 'p'
ORDER BY f::text
"""
_PYTHON = """
CREATE FUNCTION python() RETURNS integer LANGUAGE plpython3u AS $$
import traceback
def deep(n):
    return deep(n - 1) if n else len(traceback.extract_stack())
deep(20)
return plpy.execute("SELECT 1 AS one")[0]["one"]
$$
"""
# An expression of each type, with a place for the expression of an integer.
_VALUES = {
    "bigint": "({})::bigint",
    "integer": "({})::integer",
    "text": "({})::text",
    "oid": "({})::oid",
    "character varying": "({})::varchar",
    "name": "({})::text::name",
    "regclass": "(CASE WHEN ({}) > 0 THEN 'many'::regclass END)",
    "real[]": "ARRAY[{}]::real[]",
    "smallint[]": "ARRAY[{}]::smallint[]",
    "anyarray": "ARRAY[{}]::integer[]",
    "anyelement": "({})::integer",
    "bytea": "(CASE WHEN ({}) > 0 THEN '\\x00000000'::bytea END)",
    "integer[]": "ARRAY[{}]::integer[]",
}
# The type that NULL gets for a polymorphic argument: a row type, for which such functions are made.
_ANY = {"anyelement": "other"}


class Routine(NamedTuple):
    name: str
    types: list[str]
    required: int

    def write_call(self, value: str) -> str:
        """Return a call of the function with an SQL expression as first argument, and NULL for the others."""
        first, *more = [*self.types[: max(self.required, 1)], None]
        if first is None:
            return f"cerebro.{self.name}()"
        values = [_VALUES[first].format(value), *(f"NULL::{_ANY.get(kind, kind)}" for kind in more if kind)]
        return f"cerebro.{self.name}({', '.join(values)})"

    def inside(self, query: str) -> str:
        return query.format(f=self.write_call("a"), t=self.write_call("a"), g=self.write_call("max(a)"))


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE many (a integer, b integer) DISTRIBUTED BY (a);"
        "CREATE TABLE other (c integer, b integer) DISTRIBUTED BY (c);"
        "CREATE TABLE whole (a integer, b integer) DISTRIBUTED REPLICATED;"
        "INSERT INTO many SELECT g, g % 3 FROM generate_series(32001, 32020) AS g;"
        "INSERT INTO other SELECT g, g % 3 FROM generate_series(32001, 32020) AS g;"
        "INSERT INTO whole SELECT g, g % 3 FROM generate_series(32001, 32020) AS g"
    )
    trial.sql(_PYTHON)


@pytest.fixture(scope="module")
def routines(trial: Trial, tables: None) -> list[Routine]:
    found = [Routine(*row) for row in trial.sql(_FUNCTIONS)]
    assert len(found) > 50
    return found


@pytest.fixture
def caller(database: str) -> Iterator[Connection]:
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        yield connection


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_every_function_answers_or_refuses_in_any_query(
    caller: Connection, routines: list[Routine], query: str
) -> None:
    execute(caller, "SELECT cerebro.convert_array_to_bytea(ARRAY[1]::real[])")
    for routine in routines:
        _held(caller, routine, query)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_so_it_does_as_the_first_of_a_session(database: str, routines: list[Routine], query: str) -> None:
    for name in ("resume", "convert_array_to_bytea", "config_state"):
        routine = next(r for r in routines if r.name == name)
        with closing(psycopg2.connect(dbname=database)) as connection:
            connection.autocommit = True
            _held(connection, routine, query)


def test_every_function_does_so_as_the_first_of_a_session(database: str, routines: list[Routine]) -> None:
    for routine in routines:
        with closing(psycopg2.connect(dbname=database)) as connection:
            connection.autocommit = True
            _held(connection, routine, QUERIES["of an aggregate"])


def _held(connection: Connection, routine: Routine, query: str) -> None:
    """Run a query with the function: it must answer or be refused, and Python must still work afterwards."""
    try:
        execute(connection, routine.inside(query))
    except psycopg2.Error as error:
        said = error.diag.message_primary or ""
        ours = said.startswith("cerebro: ")
        # The server itself may refuse code in PL/pgSQL, such as defaults of parameters, which does no harm
        # there.
        servers = error.pgcode == "0A000"
        # The server refuses a function that returns a set in some places.
        nowhere = "set-valued function" in said
        assert ours or servers or nowhere or routine.name.startswith("_"), (routine, said)
    if query.startswith("CREATE"):
        execute(connection, "DROP TABLE IF EXISTS pg_temp.made")
    assert execute(connection, "SELECT python()") == [(1,)], routine


def test_what_the_guides_say_instead_is_right(caller: Connection) -> None:
    with pytest.raises(psycopg2.Error, match="you have no run"):
        execute(caller, "SELECT cerebro.resume((SELECT max(a) FROM many))")
    with pytest.raises(psycopg2.Error, match="you have no run"):
        execute(
            caller,
            "DO $$ DECLARE run bigint; BEGIN FOREACH run IN ARRAY ARRAY(SELECT a FROM many) LOOP"
            " PERFORM cerebro.forget(run); END LOOP; END $$",
        )


def test_a_refusal_says_what_to_write(caller: Connection) -> None:
    for _ in range(2):
        with pytest.raises(psycopg2.errors.FeatureNotSupported, match="reads tables cannot call") as caught:
            execute(caller, "SELECT cerebro.resume(max(a)) FROM many")
        assert "such as (SELECT max(run_id) FROM cerebro.runs)" in (caught.value.diag.message_hint or "")
        execute(caller, "SELECT cerebro.convert_array_to_bytea(ARRAY[1]::real[])")


@pytest.mark.parametrize("call", [
    "SELECT p.* FROM many AS o, cerebro.predict('many', o) AS p",
    "SELECT cerebro.predict('many', 1, ARRAY[a]::float8[]) FROM many",
    "SELECT cerebro.predict('many', w) FROM whole AS w",
    "SELECT cerebro.predict('many', 1, ARRAY[1]::float8[])",
    "SELECT cerebro.predict('many', o) FROM (SELECT 1 AS a) AS o",
    "SELECT * FROM cerebro.predict_query('many', 'SELECT * FROM other', NULL::other)",
    "SELECT * FROM cerebro.predict_related('many', 'SELECT 1 / 0 AS id')",
])  # fmt: skip
def test_what_predicts_inside_queries_names_what_predicts_here(caller: Connection, call: str) -> None:
    """A session's first call is refused in the same words, before the Python package is loaded."""
    for _ in range(2):
        with pytest.raises(psycopg2.errors.FeatureNotSupported) as caught:
            execute(caller, call)
        assert (caught.value.diag.message_primary or "").startswith("cerebro: cerebro.predict, ")
        assert "Use cerebro.madlib_predict" in (caught.value.diag.message_hint or "")
        execute(caller, "SELECT cerebro.convert_array_to_bytea(ARRAY[1]::real[])")


def test_functions_that_only_convert_stand_in_any_query(caller: Connection) -> None:
    execute(caller, "SELECT cerebro.convert_array_to_bytea(ARRAY[1]::real[])")
    grouped = (
        "SELECT cerebro.convert_array_to_bytea(ARRAY[max(a)]::smallint[]) FROM many GROUP BY b ORDER BY 1"
    )
    found = execute(caller, grouped)
    assert [int.from_bytes(data, "little") for (data,) in found] == [32018, 32019, 32020]
