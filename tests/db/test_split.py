"""train_test_split: a table is split into rows for training and rows for testing."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import psycopg2
import pytest
from psycopg2.errorcodes import (
    DATATYPE_MISMATCH,
    DUPLICATE_COLUMN,
    DUPLICATE_TABLE,
    INSUFFICIENT_PRIVILEGE,
    INVALID_PARAMETER_VALUE,
    NULL_VALUE_NOT_ALLOWED_,
    READ_ONLY_SQL_TRANSACTION,
    UNDEFINED_COLUMN,
    UNDEFINED_TABLE,
)

from fixtures import Connect, Connection, MakeRole, Sql

STATE = "55000"


@pytest.fixture(autouse=True)
def tables(sql: Sql) -> None:
    sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT ALL ON SCHEMA public TO public")
    sql(
        """CREATE TABLE t AS
           SELECT i AS id, ARRAY[i, -i]::real[] AS x,
                  CASE WHEN i > 3 THEN (ARRAY['a', 'B'])[i % 2 + 1] END AS y, i % 7 AS "Number"
             FROM generate_series(1, 100) AS i"""
    )


def split(sql: Sql, *given: object, on: Connection | None = None, **named: Any) -> None:
    places = ["%s"] * len(given) + [f"{name} => %s" for name in named]
    sql(f"SELECT cerebro.train_test_split({', '.join(places)})", *given, *named.values(), on=on)


def counts(sql: Sql, table: str, by: str = "split") -> dict[Any, int]:
    return dict(sql(f"SELECT {by}, count(*) FROM {table} GROUP BY 1"))


def columns(sql: Sql, table: str) -> list[str]:
    return [
        name
        for (name,) in sql(
            "SELECT concat_ws(' ', attname, format_type(atttypid, NULL)) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
            table,
        )
    ]


def test_one_table_says_which_rows_are_for_training(sql: Sql) -> None:
    split(sql, "t", "out", 0.8)
    assert columns(sql, "out") == ["id integer", "x real[]", "y text", "Number integer", "split integer"]
    assert counts(sql, "out") == {1: 80, 0: 20}
    assert sql('SELECT id, x, y, "Number" FROM out ORDER BY id') == sql("SELECT * FROM t ORDER BY id")


def test_two_tables(sql: Sql) -> None:
    sql("SELECT cerebro.train_test_split('t', 'out', 0.8, NULL, NULL, NULL, FALSE, TRUE)")
    assert columns(sql, "out_train") == columns(sql, "out_test") == columns(sql, "t")
    trained, tested = ({row[0] for row in sql(f"SELECT id FROM out_{which}")} for which in ("train", "test"))
    assert (len(trained), len(tested), trained | tested) == (80, 20, set(range(1, 101)))
    assert sql("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'")[
        0
    ] == (3,)


def test_what_is_in_neither_part_is_left_out(sql: Sql) -> None:
    split(sql, "t", "out", 0.5, 0.2)
    assert counts(sql, "out") == {1: 50, 0: 20}


def test_each_group_is_split_in_the_same_proportions(sql: Sql) -> None:
    split(sql, "t", "out", 0.5, 0.5, ' y,"Number" ', "id", False, False)
    assert columns(sql, "out") == ["y text", "Number integer", "id integer", "split integer"]
    groups = Counter(sql('SELECT y, "Number" FROM t'))
    trained = Counter(sql('SELECT y, "Number" FROM out WHERE split = 1'))
    assert None in {y for y, _ in groups}
    assert trained == Counter({group: -(-(rows - 1) // 2) for group, rows in groups.items()})
    assert Counter(sql('SELECT y, "Number" FROM out')) == groups


def test_columns_that_are_named_and_the_star(sql: Sql) -> None:
    split(sql, "t", "out", 0.8, target_cols="x, id,x")
    assert columns(sql, "out") == ["x real[]", "id integer", "split integer"]
    split(sql, "t", "all", 0.8, grouping_cols="y", target_cols="*")
    assert columns(sql, '"all"') == [*columns(sql, "t"), "split integer"]


def test_with_replacement_rows_may_come_again(sql: Sql) -> None:
    split(sql, "t", "out", 0.7, None, "y", "id", True, True, json.dumps({"seed": 3}))
    groups = counts(sql, "t", "y")
    assert sum(groups.values()) == 100
    ids = {part: [row[0] for row in sql(f"SELECT id FROM out_{part}")] for part in ("train", "test")}
    for part, share in (("train", 0.7), ("test", 0.3)):
        assert counts(sql, f"out_{part}", "y") == {y: round(rows * share) for y, rows in groups.items()}
        assert set(ids[part]) <= set(range(1, 101))
    assert len(set(ids["train"])) < len(ids["train"]) == 70
    assert set(ids["train"]) & set(ids["test"])
    assert sql("SELECT count(*) FROM out_train JOIN t USING (id) WHERE out_train.y IS DISTINCT FROM t.y") == [
        (0,)
    ]


@pytest.mark.parametrize("replacement", [False, True])
def test_a_seed_splits_the_same_rows_alike_wherever_they_lie(sql: Sql, replacement: bool) -> None:
    sql("CREATE TABLE other AS SELECT * FROM t ORDER BY id DESC")
    for table, out, seed in (("t", "a", 5), ("other", "b", 5), ("t", "c", 6)):
        options = json.dumps({"seed": seed})
        split(sql, table, out, 0.6, with_replacement=replacement, options=options)
    a, b, c = (sql(f"SELECT id, split FROM {name} ORDER BY 1, 2") for name in "abc")
    assert a == b
    assert a != c


def test_without_a_seed_chance_decides(sql: Sql) -> None:
    for name in "ab":
        split(sql, "t", name, 0.5)
    assert len({tuple(sql(f"SELECT id FROM {name} WHERE split = 1 ORDER BY 1")) for name in "ab"}) == 2


def test_names_are_read_as_sql_reads_them(sql: Sql) -> None:
    sql(
        'CREATE SCHEMA "Other"; CREATE VIEW "Other"."My rows" AS'
        ' SELECT id AS c0, x AS "a ""b""", y AS place, y AS n, y AS s FROM t'
    )
    split(sql, '"Other"."My rows"', '"Other"."Out %"', 0.5, None, 'place, "a ""b"""', None, False, True)
    assert columns(sql, '"Other"."Out %_train"') == columns(sql, '"Other"."My rows"')
    split(sql, '"Other"."My rows"', "out", 0.5, None, "s", None, True)
    assert sum(counts(sql, "out").values()) == 100


WRONG: list[tuple[str, str, dict[str, object]]] = [
    (NULL_VALUE_NOT_ALLOWED_, "input table is NULL or empty", {"source_table": None}),
    (NULL_VALUE_NOT_ALLOWED_, "output table is NULL or empty", {"output_table": " "}),
    (NULL_VALUE_NOT_ALLOWED_, "train_proportion is NULL", {"train_proportion": None}),
    (INVALID_PARAMETER_VALUE, "between 0 and 1", {"train_proportion": 1}),
    (INVALID_PARAMETER_VALUE, "between 0 and 1", {"train_proportion": "NaN"}),
    (INVALID_PARAMETER_VALUE, "between 0 and 1", {"test_proportion": 0}),
    (INVALID_PARAMETER_VALUE, "more than 1", {"test_proportion": 0.6}),
    (UNDEFINED_TABLE, "does not exist", {"source_table": "nowhere"}),
    (UNDEFINED_COLUMN, 'column "yy" does not exist', {"grouping_cols": "yy"}),
    (UNDEFINED_COLUMN, 'column "number" does not exist', {"target_cols": "number"}),
    (INVALID_PARAMETER_VALUE, "is not a list of columns", {"target_cols": "id + 1"}),
    (INVALID_PARAMETER_VALUE, "is not a list of columns", {"grouping_cols": "ARRAY[id]"}),
    (DATATYPE_MISMATCH, "cannot be a grouping column", {"source_table": "j", "grouping_cols": "doc"}),
    (INVALID_PARAMETER_VALUE, "has no rows", {"source_table": "nothing"}),
    (DUPLICATE_COLUMN, 'two columns called "split"', {"source_table": "j"}),
    (DUPLICATE_TABLE, "already exists", {"output_table": "t"}),
    (DUPLICATE_TABLE, "already exists", {"output_table": "u", "separate_output_tables": True}),
    (INVALID_PARAMETER_VALUE, "unknown option sed", {"options": '{"sed": 1}'}),
    (INSUFFICIENT_PRIVILEGE, "another session's", {"output_table": "pg_temp_999.out"}),
]


@pytest.mark.parametrize(("code", "text", "wrong"), WRONG)
def test_what_is_wrong_is_said_before_anything_is_made(
    sql: Sql, code: str, text: str, wrong: dict[str, object]
) -> None:
    sql("CREATE TABLE j AS SELECT '{}'::json AS doc, 1 AS split; CREATE TABLE nothing AS TABLE t LIMIT 0")
    sql("CREATE TABLE u_test (i integer)")
    before = sql("SELECT count(*) FROM pg_class")
    with pytest.raises(psycopg2.Error) as caught:
        split(sql, **{"source_table": "t", "output_table": "out", "train_proportion": 0.5, **wrong})
    assert (caught.value.pgcode, text in str(caught.value)) == (code, True), caught.value
    assert sql("SELECT count(*) FROM pg_class") == before


def test_it_has_its_callers_rights(sql: Sql, connect: Connect, role: MakeRole) -> None:
    session = connect(user=role())
    with pytest.raises(psycopg2.Error) as caught:
        split(sql, "t", "out", 0.5, on=session)
    assert caught.value.pgcode == INSUFFICIENT_PRIVILEGE
    sql(f"GRANT SELECT ON t TO {session.info.user}")
    split(sql, "t", "out", 0.5, separate_output_tables=True, on=session)
    assert sql("SELECT DISTINCT tableowner FROM pg_tables WHERE tablename LIKE 'out%'") == [
        (session.info.user,)
    ]
    sql("BEGIN READ ONLY", on=session)
    with pytest.raises(psycopg2.Error) as caught:
        split(sql, "t", "out", 0.5, on=session)
    assert caught.value.pgcode in (STATE, READ_ONLY_SQL_TRANSACTION)
    sql("ROLLBACK", on=session)
