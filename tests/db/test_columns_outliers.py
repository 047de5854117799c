"""Packing warns of values so far from the rest of a column that scaling makes the rest nearly equal."""

from __future__ import annotations

import json

import pytest

from trial import Trial


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    # Columns with a skewed but natural spread, such as `wealth`, have no outliers.
    trial.sql(
        'CREATE TABLE people AS SELECT i AS age, i % 2 AS sex, (i % 10 = 0)::integer * (i % 7) AS "b a",'
        " exp(i % 23)::float8 AS wealth, (i = 7)::integer * 1000000000 AS flag, (i % 101)::float8 AS income,"
        " (i % 101)::numeric AS debt, date '2024-01-01' + i AS born, i % 3 AS class"
        " FROM generate_series(1, 900) AS i"
    )


def packed(trial: Trial, **options: object) -> str:
    trial.sql("DROP TABLE IF EXISTS people_packed, people_packed_summary")
    trial.notices()
    trial.pack("people", "people_packed", "class", "*", options={"columns": "auto", **options})
    return trial.notices()


def test_columns_without_outliers_are_not_spoken_of(trial: Trial) -> None:
    assert "from the rest" not in packed(trial)
    rows = trial.sql("SELECT * FROM cerebro.describe_columns('people')")
    assert "from the rest" not in trial.notices() and "from the rest" not in str(rows)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("income", "1e12", "its value 1e+12 is 3e+10 deviations away from the rest"),
        ("income", "-1e12", "its value -1e+12 is 3e+10 deviations away from the rest"),
        ("debt", "1e12", "its value 1e+12 is 3e+10 deviations away from the rest"),
        ("b a", "2000000000", "its value 2000000000 is 2e+09 deviations away from the rest"),
    ],
)
@pytest.mark.parametrize("number", [1, 5])
def test_an_outlier_is_told_with_column_value_and_what_to_do(
    trial: Trial, column: str, value: str, said: str, number: int
) -> None:
    trial.sql("BEGIN")
    where = "age IN (SELECT age FROM people WHERE age % 100 = 3 LIMIT %s)"
    trial.sql(f'UPDATE people SET "{column}" = {value} WHERE {where.replace("% 100", "%% 100")}', number)
    found = packed(trial)
    rows = {row[0]: row[8] for row in trial.sql("SELECT * FROM cerebro.describe_columns('people')")}
    described = trial.notices()
    scale = json.dumps({"columns": {column: {"scale": "log"}}})
    quiet = packed(trial, columns={column: {"scale": "log"}})
    trial.sql("ROLLBACK")
    for text in (found, described):
        assert f'"{column}": {said}. Correct such rows or leave them out' in text
        assert f"or scale by logarithms: {scale}" in text
    assert [name for name, why in rows.items() if "from the rest" in why] == [column]
    assert said in rows[column]
    assert "from the rest" not in quiet


def test_an_outlier_of_a_target_is_told(trial: Trial) -> None:
    trial.sql("BEGIN; UPDATE people SET income = 1e12 WHERE age = 3")
    trial.sql("DROP TABLE IF EXISTS people_packed, people_packed_summary")
    trial.notices()
    trial.pack("people", "people_packed", "income", "*", options={"columns": "auto"})
    said = trial.notices()
    trial.sql("ROLLBACK")
    assert 'target "income": its value 1e+12 is 3e+10 deviations away from the rest' in said
    assert '"income": its value' in said and "scale by logarithms" not in said


@pytest.mark.parametrize("value", ["'NaN'", "NULL"])
def test_what_is_no_number_is_no_outlier(trial: Trial, value: str) -> None:
    trial.sql(f"BEGIN; UPDATE people SET income = {value} WHERE age = 3")
    said = packed(trial)
    trial.sql("ROLLBACK")
    assert "from the rest" not in said
