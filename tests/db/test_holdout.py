"""Option `validation` of packing: some rows are held out, and packed into a second table for validation."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import psycopg2
import pytest

from fixtures import MakeRole, Sql
from packing import column

ROWS = 2000


@pytest.fixture(autouse=True)
def patients(sql: Sql) -> None:
    sql("DROP TABLE IF EXISTS patients, packed, packed_summary, packed_validation, packed_validation_summary")
    sql(
        "CREATE TABLE patients AS SELECT i AS id, i % 50 AS patient, i * 0.5 AS dose,"
        " '2025-12-01'::timestamp + i * interval '1 hour' AS at,"
        " CASE WHEN i % 100 < 3 THEN 'ill' ELSE 'well' END AS state"
        f" FROM generate_series(1, {ROWS}) i"
    )


def pack(
    sql: Sql, validation: Any, listed: str = "id, patient, dose", source: str = "patients", **more: Any
) -> None:
    said = {name: {"scale": "none"} for name in listed.split(", ")}
    options = {"columns": said, "segments": 2, "validation": validation, **more}
    sql(
        "SELECT cerebro.training_preprocessor_dl(%s, 'packed', 'state', %s, options => %s)",
        source,
        listed,
        json.dumps(options),
    )


def parts(sql: Sql, place: int = 0) -> tuple[set[float], set[float]]:
    """Return the values of an input column in the training table and in the validation table."""
    kept, held = (
        column(sql, "independent_var", "<f4", table)[:, place] for table in ("packed", "packed_validation")
    )
    return set(kept.tolist()), set(held.tolist())


def test_a_share_is_held_out_by_content_and_seed(sql: Sql) -> None:
    pack(sql, 0.2)
    kept, held = parts(sql)
    assert not kept & held
    assert kept | held == set(range(1, ROWS + 1))
    assert 0.16 < len(held) / ROWS < 0.24
    patients = "SELECT * FROM patients ORDER BY md5(id::text)"
    sql(f"CREATE TABLE turned AS {patients}")
    sql("DROP TABLE patients, packed, packed_summary, packed_validation, packed_validation_summary")
    sql("ALTER TABLE turned RENAME TO patients")
    pack(sql, 0.2)
    assert parts(sql) == (kept, held)
    sql("DROP TABLE packed, packed_summary, packed_validation, packed_validation_summary")
    pack(sql, 0.2, seed=2)
    assert parts(sql)[1] != held


def test_statistics_are_those_of_the_rows_that_stay(sql: Sql) -> None:
    pack(sql, 0.5)
    kept, _ = parts(sql)
    (found,) = sql("SELECT feature_specification, total_rows FROM packed_summary")
    assert found[0]["columns"][0]["statistics"]["mean"] == pytest.approx(np.mean(list(kept)))
    assert found[0]["rows"] == found[1] == len(kept)
    other = sql("SELECT feature_specification, source_table, output_table FROM packed_validation_summary")
    assert other == [(found[0], "patients", "packed_validation")]


def test_nobody_is_on_both_sides(sql: Sql) -> None:
    pack(sql, {"share": 0.3, "by": "patient"})
    kept, held = parts(sql, 1)
    assert not kept & held and kept and held


def test_what_comes_later_is_held_out(sql: Sql) -> None:
    pack(sql, {"after": "2026-01-01", "on": "at"})
    first = sql("SELECT min(id) FROM patients WHERE at >= '2026-01-01'")[0][0]
    assert parts(sql)[1] == set(range(first, ROWS + 1))


@pytest.mark.parametrize("equal", [False, True], ids=["different rows", "equal rows"])
def test_each_class_gives_its_share(sql: Sql, equal: bool) -> None:
    """A share of each class is held out; equal rows may then be in both tables."""
    if equal:
        sql("UPDATE patients SET id = patient, dose = 0, at = '2026-01-01'")
    pack(sql, {"share": 0.25, "stratify": True})
    held = column(sql, "state", "<i2", "packed_validation")
    assert held.sum(axis=0).tolist() == [15, 485]
    assert equal or parts(sql)[0].isdisjoint(parts(sql)[1])
    assert len(column(sql, "state", "<i2", "packed")) + len(held) == ROWS


SOURCES = {
    "a view": ["CREATE VIEW other AS SELECT * FROM patients"],
    "a partitioned table": [
        "CREATE TABLE other (LIKE patients) PARTITION BY HASH (patient)",
        "CREATE TABLE other_1 PARTITION OF other FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        "CREATE TABLE other_2 PARTITION OF other FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        "INSERT INTO other SELECT * FROM patients",
    ],
    "a table with a child": [
        "CREATE TABLE other AS SELECT * FROM patients WHERE patient < 20",
        "CREATE TABLE child () INHERITS (other)",
        "INSERT INTO child SELECT * FROM patients WHERE patient >= 20",
    ],
}


@pytest.mark.parametrize("validation", [0.2, {"share": 0.25, "stratify": True}, {"by": "patient"}])
@pytest.mark.parametrize("equal", [False, True], ids=["different rows", "equal rows"])
def test_rows_of_a_table_are_held_out_as_those_of_other_sources(
    sql: Sql, validation: Any, equal: bool
) -> None:
    """A plain table, whose held-out rows are found by their positions, is split as other sources are."""
    if equal:
        sql("UPDATE patients SET id = id % 40, dose = 0, patient = id % 40, at = '2026-01-01'")
    packed = "md5(string_agg(independent_var::text, ',' ORDER BY __dist_key__, buffer_id))"
    ask = f"SELECT (SELECT {packed} FROM packed), (SELECT {packed} FROM packed_validation)"
    pack(sql, validation)
    expected = sql(ask)
    for kind, statements in SOURCES.items():
        sql("DROP TABLE packed, packed_summary, packed_validation, packed_validation_summary")
        for statement in statements:
            sql(statement)
        pack(sql, validation, source="other")
        sql(f"DROP {'VIEW' if kind == 'a view' else 'TABLE'} other CASCADE")
        assert (kind, sql(ask)) == (kind, expected)


def test_a_caller_with_rights_on_columns_alone_holds_rows_out(sql: Sql, role: MakeRole) -> None:
    """A role with rights on columns alone can hold rows out, without the positions of rows."""
    reader = role()
    sql(f"GRANT SELECT (id, patient, dose, at, state) ON patients TO {reader}")
    sql(f"GRANT CREATE ON SCHEMA public TO {reader}")
    sql(f"SET ROLE {reader}")
    try:
        pack(sql, 0.2)
        assert len(parts(sql)[1]) > 0
        sql("DROP TABLE packed, packed_summary, packed_validation, packed_validation_summary")
    finally:
        sql("RESET ROLE")


def test_of_a_class_too_small_for_the_share_all_rows_stay(sql: Sql) -> None:
    sql("DELETE FROM patients WHERE state = 'ill' AND id > 1")
    pack(sql, {"share": 0.25, "stratify": True})
    assert column(sql, "state", "<i2", "packed").sum(axis=0).tolist() == [1, 1455]


def test_of_a_table_without_rows_nothing_is_left_to_train_on(sql: Sql) -> None:
    sql("DELETE FROM patients")
    with pytest.raises(psycopg2.Error, match="leaves no rows of .* to train on"):
        pack(sql, {"share": 0.25, "stratify": True})


WRONG = {
    "too large a share": (1.5, "22023", "option validation is 1.5"),
    "an unknown key": ({"share": 0.2, "buy": "patient"}, "22023", "buy"),
    "no such column": ({"by": "patent"}, "42703", 'column "patent" does not exist'),
    "half of a time": ({"after": "2026-01-01"}, "22023", "needs both after and on"),
    "nothing after": ({"after": "2036-01-01", "on": "at"}, "22023", "leaves no rows of .* to validate on"),
    "no time": ({"after": "soon", "on": "at"}, "22007", "invalid input syntax"),
    "code": ({"after": "2026-01-01'; DROP TABLE patients --", "on": "at"}, "22007", "invalid"),
}  # fmt: skip


@pytest.mark.parametrize("said, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused(sql: Sql, said: Any, code: str, text: str) -> None:
    with pytest.raises(psycopg2.Error, match=text) as caught:
        pack(sql, said)
    assert caught.value.pgcode == code
    assert sql("SELECT to_regclass('packed'), to_regclass('packed_validation')") == [(None, None)]
