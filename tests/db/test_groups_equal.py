"""A row belongs to a group if their values are equal by the rules of the type, however they are written."""

from __future__ import annotations

import psycopg2
import pytest

import nets
from trial import ADAM, Trial

pytestmark = pytest.mark.fresh_caller

# Of a table in groups: the type of the column with two values, and of rows to be predicted what they hold and
# which of the two groups they are of; of none, where it says so.
FIRST, SECOND, NONE = 1, 2, 0
CASES = {
    "numeric": ("numeric", ("1.0", "2.50"), {
        "1.00::numeric": FIRST, "1::int": FIRST, "1::float8": FIRST, "2.5::real": SECOND,
        "'2.500'::text": SECOND,
        "1.001::numeric": NONE, "NULL::numeric": NONE}),
    "numeric(6, 2)": ("numeric(6, 2)", ("1.00", "2.50"), {"1::numeric": FIRST, "1.004::numeric": NONE}),
    "integer": ("integer", ("1", "2"), {
        "1.0::numeric": FIRST, "2::bigint": SECOND, "1.5::numeric": NONE, "2.4::float8": NONE,
        "'2'::text": SECOND,
        "2::smallint": SECOND}),
    "interval": ("interval", ("30 days", "1 day"), {
        "'1 mon'::interval": FIRST, "'24:00'::interval": SECOND, "'720 hours'::interval": FIRST,
        "'2 days'::interval": NONE}),
    "float8": ("float8", ("0", "1.4"), {
        "'-0'::float8": FIRST, "1.4::numeric": SECOND, "1.4::real": SECOND, "1.4000001::float8": NONE,
        "0::int": FIRST}),
    "real": ("real", ("0.1", "1.4"), {"1.4::real": SECOND, "1.4::float8": SECOND, "0.1::numeric": FIRST}),
    "text": ("text", ("1", "1.10"), {
        "1::int": FIRST, "1.10::numeric": SECOND, "1.1::numeric": NONE, "'1'::varchar(3)": FIRST}),
    "varchar(3)": ("varchar(3)", ("abc", "b"), {"'abcdef'::text": NONE, "'b'::text": SECOND}),
    "char(4)": ("char(4)", ("ab", "c"), {
        "'ab  '::char(4)": FIRST, "'c'::char(9)": SECOND, "'c'::text": SECOND}),
    "date": ("date", ("2024-02-01", "2024-02-02"), {
        "'2024-02-01'::date": FIRST, "'2024-02-01 00:00'::timestamp": FIRST,
        "'2024-02-01 10:00'::timestamp": NONE}),
    "timestamptz": ("timestamptz", ("2024-02-01 00:00Z", "2024-02-01 01:00Z"), {
        "'2024-02-01 01:00+01'::timestamptz": FIRST, "'2024-02-01 02:00+01'::timestamptz": SECOND}),
    "boolean": ("boolean", ("true", "false"), {"TRUE": FIRST, "'f'::text": SECOND, "NULL::boolean": NONE}),
}  # fmt: skip
JAX = {"backend": "jax"}


@pytest.fixture(scope="module", autouse=True)
def nets_of_one_number(trial: Trial) -> None:
    trial.model(nets.mlp(1, 2, 2))
    trial.select("configs", [1], [ADAM], ["batch_size=8"])


def fresh(trial: Trial) -> None:
    tables = [
        name + suffix for name in ("packed", "models") for suffix in ("", "_info", "_summary", "_groups")
    ]
    trial.sql(f"DROP TABLE IF EXISTS {', '.join(tables)}, sales, asked, told CASCADE")


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "name, fallback", [*((name, False) for name in CASES), ("numeric", True), ("interval", True)]
)
def test_all_forms_find_the_same_group(trial: Trial, name: str, fallback: bool) -> None:
    """Rows, queries and tables find the same group's model, or else no model or that of all rows."""
    kind, values, rows = CASES[name]
    fresh(trial)
    trial.sql(
        f"CREATE TABLE sales AS SELECT v::{kind} AS shop, i %% 2 AS y, i / 40.0::real AS x"
        f" FROM unnest(%s::text[]) AS v, generate_series(1, 40) AS i",
        list(values),
    )
    trial.pack("sales", "packed", options={"group_by": "shop"})
    trial.fit("packed", "models", "configs", 1, options={"fallback": fallback, **JAX})
    expected = trial.sql(
        "SELECT p.probability FROM (SELECT DISTINCT shop FROM sales) AS s,"
        f" cerebro.predict('models', (SELECT r FROM (SELECT s.shop, 0.5::real AS x) AS r)) AS p"
        f" ORDER BY s.shop = (%s)::{kind} DESC",
        values[0],
    )
    answers = {FIRST: expected[0][0], SECOND: expected[1][0]}
    of_all = set()
    for value, group in rows.items():
        trial.sql("DROP TABLE IF EXISTS asked, told")
        trial.sql(f"CREATE TABLE asked AS SELECT 7 AS id, {value} AS shop, 0.5::real AS x")
        by_row = trial.sql("SELECT p.probability FROM asked AS a, cerebro.predict('models', a) AS p")
        by_query = trial.sql(
            "SELECT p.probability FROM cerebro.predict_query('models', 'TABLE asked', NULL::asked) p"
        )
        trial.call("madlib_predict", "models", "asked", "id", "x", "told", "response")
        by_table = trial.sql("SELECT prob FROM told") or [(None,)]
        found = {form[0][0] and round(form[0][0], 6) for form in (by_row, by_query, by_table)}
        assert len(found) == 1, value
        if group == NONE:
            of_all |= found
        else:
            assert found == {round(answers[group], 6)}, value
    assert len(of_all) <= 1 and (None in of_all) <= (not fallback)


@pytest.mark.parametrize("value", ["'{\"a\": 1.0}'::jsonb", "1::money"])
def test_values_that_are_written_in_several_ways_name_no_groups(trial: Trial, value: str) -> None:
    fresh(trial)
    trial.sql(
        f"CREATE TABLE sales AS SELECT {value} AS shop, i % 2 AS y, 1.0 AS x FROM generate_series(1, 9) AS i"
    )
    with pytest.raises(psycopg2.Error, match='column "shop" of type .* cannot name groups') as caught:
        trial.pack("sales", "packed", options={"group_by": "shop"})
    assert caught.value.pgcode == "42804"


@pytest.mark.postgresql
def test_a_collation_that_takes_texts_for_equal_names_no_groups(trial: Trial) -> None:
    fresh(trial)
    trial.sql("DROP COLLATION IF EXISTS blind; CREATE COLLATION blind"
              " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")  # fmt: skip
    trial.sql("CREATE TABLE sales (shop text COLLATE blind, y integer, x real)")
    trial.sql("INSERT INTO sales VALUES ('a', 0, 1), ('A', 1, 2)")
    with pytest.raises(psycopg2.Error, match="its collation treats different texts as equal"):
        trial.pack("sales", "packed", options={"group_by": "shop"})


def test_rows_that_no_group_can_hold_are_not_added(trial: Trial) -> None:
    fresh(trial)
    trial.sql(
        "CREATE TABLE sales AS SELECT i % 2 AS shop, i % 3 AS y, i::real AS x FROM generate_series(1, 30) i"
    )
    trial.pack("sales", "packed", options={"group_by": "shop"})
    trial.sql("CREATE TABLE asked AS SELECT 0.5 AS shop, y, x FROM sales LIMIT 3")
    with pytest.raises(
        psycopg2.Error, match="3 rows of .* have values that the columns of groups cannot hold"
    ):
        trial.call("append_rows", "packed", "asked")
    assert trial.value("SELECT count(*) FROM packed_groups") == 2
