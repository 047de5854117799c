"""cerebro.propagate makes a table of nodes with features from the nodes around each node."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import psycopg2
import pytest

from fixtures import Connect, MakeRole
from trial import Trial

CALL = "SELECT cerebro.propagate('papers', 'cites', %s, 'paper', 'citing', 'cited', %s, hops => 2)"
KNOWN = "SELECT * FROM cites WHERE citing IS NOT NULL AND cited <> 'unknown'"


@pytest.fixture(scope="module", autouse=True)
def graph(trial: Trial) -> None:
    rng = np.random.default_rng(8)
    # Ids differ from row numbers, and one node has no edge.
    papers = [(f"p{i * 7 % 50:02}", rng.normal(size=3).tolist(), i) for i in range(50)]
    trial.table("papers", "paper text, x real[], age integer", papers)
    ends = rng.integers(0, 49, (200, 2)).tolist()
    cites = [(f"p{a:02}", f"p{b:02}", a % 3) for a, b in ends]
    trial.table("cites", "citing text, cited text, often integer", cites)
    trial.sql("INSERT INTO cites VALUES ('p01', 'unknown', 1), (NULL, 'p02', 1)")


def test_a_table_has_the_means_of_the_nodes_around(trial: Trial) -> None:
    trial.notices()
    assert trial.value(CALL, "reached", ["x", "age"]) == 50
    assert "2 of 202 edges are left out" in trial.notices()
    rows = trial.sql("SELECT paper, x, age, x_1, age_1, x_2, age_2 FROM reached ORDER BY paper")
    number = {row[0]: place for place, row in enumerate(rows)}
    matrix = np.zeros((50, 50))
    for citing, cited, _ in trial.sql(KNOWN):
        matrix[number[cited], number[citing]] += 1
    matrix /= np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    own = np.array([[*row[1], row[2]] for row in rows])
    once = np.array([[*row[3], row[4]] for row in rows])
    twice = np.array([[*row[5], row[6]] for row in rows])
    np.testing.assert_allclose(once, matrix @ own, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(twice, matrix @ matrix @ own, rtol=1e-6, atol=1e-6)
    left = "SELECT FROM pg_class WHERE relname IN ('cerebro_numbered_nodes', 'cerebro_propagated')"
    assert not trial.sql(left)


def test_weights_count_and_both_ends_may_be_divided_by(trial: Trial) -> None:
    trial.sql(
        "SELECT cerebro.propagate('papers', 'cites', 'weighed', 'paper', 'citing', 'cited', '{age}', 1,"
        " 'symmetric', weight => 'often', teleport => 0.1)"
    )
    rows = trial.sql("SELECT paper, age, age_1 FROM weighed ORDER BY paper")
    number = {row[0]: place for place, row in enumerate(rows)}
    matrix = np.zeros((50, 50))
    for citing, cited, often in trial.sql(KNOWN):
        matrix[number[cited], number[citing]] += often
    matrix = np.maximum(matrix, matrix.T) + np.eye(50)
    degrees = matrix.sum(axis=1)
    own = np.array([row[1] for row in rows])
    wanted = 0.9 * (matrix / np.sqrt(np.outer(degrees, degrees))) @ own + 0.1 * own
    np.testing.assert_allclose([row[2] for row in rows], wanted, rtol=1e-6)


REFUSED = {
    "an id that repeats": ("n(id int, x real)", "(1, 1), (1, 2)", "has 1 different values in 2 nodes"),
    "no id": ("n(id int, x real)", "(1, 1), (NULL, 2)", "is NULL in 1 of 2 nodes"),
    "no node": ("n(id int, x real)", None, "has no rows"),
    "NULL": ("n(id int, x real)", "(1, 1), (2, NULL)", 'column "x" is NULL in 1 of 2 rows'),
    "other shapes": ("n(id int, x real[])", "(1, '{1}'), (2, '{1,2}')", "another shape than the first row"),
    "text": ("n(id int, x text)", "(1, '1')", 'feature "x" of type text is no number'),
    "a name that is taken": ("n(id int, x real, x_1 real)", "(1, 1, 1)", 'two columns "x_1"'),
    "no order": ("n(id json, x real)", "('1', 1)", "has no order"),
}  # fmt: skip


@pytest.mark.parametrize(("table", "rows", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_propagated_is_refused(
    trial: Trial, table: str, rows: str | None, message: str
) -> None:
    trial.sql(f"DROP TABLE IF EXISTS n, pairs; CREATE TABLE {table}")
    trial.sql("CREATE TABLE pairs AS SELECT 1 AS citing, 2 AS cited")
    if rows:
        trial.sql(f"INSERT INTO n VALUES {rows}")
    with pytest.raises(psycopg2.Error, match=message):
        trial.sql("SELECT cerebro.propagate('n', 'pairs', 'none', 'id', 'citing', 'cited', '{x}', 1)")
    assert not trial.value("SELECT to_regclass('none') IS NOT NULL")


ARGUMENTS = {
    "hops": ("hops => 0", "hops is 0, it must be from 1 to 16"),
    "aggregate": ("aggregate => 'max'", "aggregate is max"),
    "teleport": ("teleport => 1", "teleport is 1.0, it must be from 0 to below 1"),
    "weight": ("weight => 'citing'", 'weight "citing" of type text is no number'),
    "negative weight": ("weight => 'worse'", 'is NULL, negative or not finite in 3 of 4 edges'),
}  # fmt: skip


@pytest.mark.parametrize(("argument", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_an_argument_that_is_wrong_is_refused(trial: Trial, argument: str, message: str) -> None:
    trial.sql("DROP TABLE IF EXISTS worse; CREATE TABLE worse (citing text, cited text, worse float8)")
    trial.sql("INSERT INTO worse VALUES ('a', 'b', -1), ('a', 'b', 1), ('a', 'c', NULL), ('a', 'c', 'NaN')")
    with pytest.raises(psycopg2.Error, match=message):
        call = "cerebro.propagate('papers', 'worse', 'none', 'paper', 'citing', 'cited', '{age}', "
        trial.sql(f"SELECT {call}{argument})")


def test_ends_that_are_no_ids_are_refused(trial: Trial) -> None:
    call = "SELECT cerebro.propagate('papers', 'cites', 'none', 'age', 'citing', 'cited', '{x}', 1)"
    message = '"citing" of public.cites cannot be compared with the id "age" of type integer'
    with pytest.raises(psycopg2.errors.DatatypeMismatch, match=message):
        trial.sql(call)


def test_names_are_quoted_and_tables_are_those_that_the_caller_may_read(
    trial: Trial, connect: Connect, role: MakeRole
) -> None:
    user = role()
    trial.sql("""CREATE SCHEMA "o d"; CREATE TABLE "o d"."n""s" ("i d" integer, "x;--" real)""")
    trial.sql("""INSERT INTO "o d"."n""s" VALUES (1, 5), (2, 7)""")
    trial.sql("""CREATE TABLE "o d"."e'" ("fr om" integer, "to" integer)""")
    trial.sql("""INSERT INTO "o d"."e'" VALUES (1, 2)""")
    trial.sql(f'GRANT USAGE ON SCHEMA "o d" TO {user}')
    call = (
        """SELECT cerebro.propagate('"o d"."n""s"', '"o d"."e''"', 'public.odd', '"i d"',"""
        """ '"fr om"', '"to"', ARRAY['"x;--"'], 1)"""
    )
    with closing(connect(user=user)) as theirs:
        session = Trial(theirs)
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="permission denied for table"):
            session.sql(call)
        trial.sql(f'GRANT SELECT ON ALL TABLES IN SCHEMA "o d" TO {user}')
        assert session.value(call) == 2
        made = session.sql('SELECT "i d", "x;--", "x;--_1" FROM odd ORDER BY 1')
        assert made == [(1, 5.0, 0.0), (2, 7.0, 5.0)]


@pytest.mark.parametrize(
    "feature, weight, how, code, words",
    [
        ("ARRAY[[1, 2], [3, i]]", "1", "mean", "42804", 'feature "x" has arrays of 2 dimensions'),
        ("i", "1e38::float8", "sum", "22003", 'values of "x_1" are beyond the range of real'),
        ("i", "1e-320::float8", "mean", "22003", 'values of "x_1" are beyond the range of real'),
        ("i", "1.7e308::float8", "mean", "22003", "add up to more than double precision holds"),
    ],
)
def test_no_sum_becomes_infinite(
    trial: Trial, feature: str, weight: str, how: str, code: str, words: str
) -> None:
    trial.sql("DROP TABLE IF EXISTS far, far_edges")
    trial.sql(f"CREATE TABLE far AS SELECT i, {feature} AS x FROM generate_series(1, 20) AS i")
    trial.sql(
        f"CREATE TABLE far_edges AS SELECT i AS a, 1 + j * i % 20 AS b, {weight} AS w"
        " FROM generate_series(1, 20) AS i, generate_series(1, 2) AS j"
    )
    call = "SELECT cerebro.propagate('far', 'far_edges', 'far_h', 'i', 'a', 'b', '{x}', 2, %s, 'w')"
    with pytest.raises(psycopg2.Error, match=words) as caught:
        trial.sql(call, how)
    assert caught.value.pgcode == code
    assert not trial.sql("SELECT FROM pg_class WHERE relname LIKE 'far_h%%'")


@pytest.mark.parametrize("what", ["hops", "aggregate", "teleport"])
def test_arguments_without_a_value_are_called_null(trial: Trial, what: str) -> None:
    call = "SELECT cerebro.propagate('papers', 'cites', 'null_h', 'paper', 'citing', 'cited', '{age}', "
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match=f"{what} is NULL"):
        trial.sql(f"{call}{what} => NULL)")
