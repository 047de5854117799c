"""Columns that identify rows are left out of the inputs; a notice names columns that reveal the label."""

from __future__ import annotations

import json

import pytest

from fixtures import Connection, Sql

ROWS = 200
LABEL = "CASE WHEN i % 3 = 0 THEN 'no' ELSE 'yes' END AS gone, (i * 37) % 11 AS kept"
KEY, NUMBERS = "a key: no two rows have the same", "numbers the rows"
RISES = "numbers the rows: it rises from row to row"

KEYS = {
    "a number from 1": ("i AS place", NUMBERS),
    "a number with gaps": ("i + i / 4 AS place", NUMBERS),
    "numbers in disorder": ("(i * 77) % 211 AS place", NUMBERS),
    "a number that rises": ("(i::bigint * i * 1000) AS place", RISES),
    "a name that keys have": ("(i::bigint * 7919 * 10007) % 1000000007 AS customer_id", KEY),
    "another": ('(i::bigint * 7919 * 10007) % 1000000007 AS "orderId"', KEY),
    "floats that are whole": ("((i * 7919) % 100003)::float8 AS id", KEY),
    "text": ("'K' || (i * 7919) % 100003 AS id", KEY),
    "a uuid": ("md5(i::text)::uuid AS token", "a uuid tells rows apart and says nothing about them"),
}
INPUTS = {
    "values far apart in no order": "(i::bigint * 7919 * 10007) % 1000000007 AS amount",
    "equal values": "i / 2 AS amount",
    "a name that keys have, with equal values": "i % 20 AS shop_id",
    "floats that rise": "i * 1.5::float8 AS amount",
}


def left_out(sql: Sql, source: str, **options: object) -> dict[str, str]:
    """Pack a table as `packed`, and return the columns that packing left out, each with the reason."""
    sql("DROP TABLE IF EXISTS packed, packed_summary, packed_validation, packed_validation_summary")
    said = json.dumps({"columns": "auto", "segments": 2, **options})
    sql("SELECT cerebro.training_preprocessor_dl(%s, 'packed', 'gone', '*', options => %s)", source, said)
    return sql("SELECT feature_specification -> 'left_out' FROM packed_summary")[0][0]


@pytest.mark.parametrize("as_view", [False, True])
@pytest.mark.parametrize("column, reason", KEYS.values(), ids=KEYS)
def test_a_key_is_left_out_whatever_is_held_out(sql: Sql, column: str, reason: str, as_view: bool) -> None:
    sql("DROP TABLE IF EXISTS keyed CASCADE")
    sql(f"CREATE TABLE keyed AS SELECT {column}, {LABEL} FROM generate_series(1, {ROWS}) i")
    sql("CREATE VIEW seen AS SELECT * FROM keyed")
    if as_view and reason == RISES:
        # A view has no order of its own.
        assert left_out(sql, "seen") == {}
        return
    source = "seen" if as_view else "keyed"
    assert list(left_out(sql, source, validation=0.3).values()) == [reason]
    assert list(left_out(sql, source).values()) == [reason]
    described = dict(sql("SELECT column_name, reason FROM cerebro.describe_columns(%s)", source))
    assert f"left out: {reason}" in described.values()


@pytest.mark.parametrize("column", INPUTS.values(), ids=INPUTS)
def test_what_only_looks_like_a_key_is_an_input(sql: Sql, column: str) -> None:
    sql("DROP TABLE IF EXISTS plain CASCADE")
    sql(f"CREATE TABLE plain AS SELECT {column}, {LABEL} FROM generate_series(1, {ROWS}) i")
    assert left_out(sql, "plain") == {}


def test_what_a_table_defines_as_a_key_is_left_out(sql: Sql) -> None:
    sql(
        "CREATE TABLE defined (a serial, b integer GENERATED ALWAYS AS IDENTITY, c integer UNIQUE,"
        " gone text, x real)"
    )
    sql(
        "INSERT INTO defined (c, gone, x)"
        " SELECT (i * 7919) % 100003, i % 2, i % 7 FROM generate_series(1, 8) i"
    )
    assert left_out(sql, "defined") == {"a": KEY, "b": KEY, "c": KEY}


def test_who_names_a_key_has_it_as_an_input(sql: Sql) -> None:
    sql(f"CREATE TABLE named AS SELECT i AS id, {LABEL} FROM generate_series(1, {ROWS}) i")
    assert left_out(sql, "named") == {"id": KEY}
    assert left_out(sql, "named", columns={"id": "auto"}) == {}
    assert left_out(sql, "named", columns={"id": {"scale": "minmax"}}) == {}


def test_a_column_that_gives_the_label_away_is_named(sql: Sql, db: Connection) -> None:
    sql(
        "CREATE TABLE telling AS SELECT CASE WHEN i % 2 = 0 THEN 'yes' ELSE 'no' END AS gone,"
        " CASE WHEN i % 2 = 0 THEN 'left' ELSE 'here' END AS status, i % 2 * 1000 + i % 90 AS score,"
        " (i * 37) % 100 AS age, i * 0.5::float8 AS paid, i * 2.0::float8 + i % 2 AS bill"
        " FROM generate_series(1, 400) i"
    )
    db.notices.clear()
    left_out(sql, "telling")
    said = [notice for notice in db.notices if "alone" in notice]
    assert len(said) == 1 and said[0].startswith(
        'NOTICE:  "status", "score" alone predict gone nearly perfectly'
    )
    assert '{"exclude": ["status", "score"]}' in said[0]
    # Of a quantity, too.
    db.notices.clear()
    sql(
        "SELECT cerebro.training_preprocessor_dl('telling', 'quantity', 'bill', '*',"
        ' options => \'{"columns": "auto", "exclude": ["gone", "status", "score"]}\')'
    )
    assert any('"paid" alone predicts bill nearly perfectly' in notice for notice in db.notices)
