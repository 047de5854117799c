"""Settings of the session change nothing in packing, splits, groups or predictions."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fixtures import Rows
from mixed import picture
from trial import ADAM, Trial

pytestmark = pytest.mark.fresh_caller

ROWS = 2400
# Each changes settings of several kinds. Most servers have no more locales than C.
WORLDS = {
    "few digits, DMY": "SET extra_float_digits = 0; SET DateStyle = 'SQL, DMY';"
    " SET TimeZone = 'Europe/Berlin'; SET IntervalStyle = sql_standard; SET bytea_output = escape;"
    " SET standard_conforming_strings = off;"
    " SET escape_string_warning = off",
    "fewest digits, ISO intervals": "SET extra_float_digits = -15; SET DateStyle = 'German, MDY';"
    " SET TimeZone = 'America/St_Johns'; SET IntervalStyle = iso_8601; SET xmlbinary = hex;"
    " SET array_nulls = off; SET transform_null_equals = on; SET quote_all_identifiers = on",
    "most digits, verbose": "SET extra_float_digits = 3; SET DateStyle = 'Postgres, YMD';"
    " SET TimeZone = 'Asia/Kathmandu'; SET IntervalStyle = postgres_verbose; SET bytea_output = escape;"
    " SET xmloption = document; SET backslash_quote = off; SET search_path = pg_catalog, public;"
    " SET row_security = off; SET client_encoding = LATIN1; SET enable_hashagg = off",
}
# Column types, with an expression in i for values whose text depends on settings.
TYPES = {
    "f4": ("real", "(ARRAY[0.1, 1.4, -0.0, 1e20, 1e-7, 33.333332, 'NaN', NULL])[1 + i % 8]"),
    "f8": ("float8", "(ARRAY[0.1 + 0.2::float8, 0.3, 1e15, 1e16, -1.4, 'Infinity', NULL])[1 + i % 7]"),
    "n": ("numeric", "(ARRAY[1.0, 1.00, 0.10, 12345678901234567890.5, -3, 'NaN'])[1 + i % 6]"),
    "i2": ("smallint", "i % 5 - 2"),
    "i4": ("integer", "i % 7 * 100000"),
    "i8": ("bigint", "i % 3 * 9007199254740993"),
    "b": ("boolean", "CASE i % 3 WHEN 0 THEN TRUE WHEN 1 THEN FALSE END"),
    "t": ("text", "(ARRAY['a', 'B ', E'c\\\\d\\'\"', '', 'é', '1.0', 'null', NULL])[1 + i % 8]"),
    "vc": ("varchar(6)", "(ARRAY['x', 'y ', 'NaN'])[1 + i % 3]"),
    "bc": ("char(6)", "(ARRAY['x', 'yy', ' z'])[1 + i % 3]"),
    "nm": ("name", "'n' || i % 4"),
    "mood": ("mood", "(ARRAY['sad', 'so so', 'null'])[1 + i % 3]"),
    "u": ("uuid", "md5((i % 4)::text)"),
    "ip": ("inet", "'10.0.0.' || i % 4 || (ARRAY['', '/8'])[1 + i % 2]"),
    "bits": ("bit(3)", "(i % 5)::bit(3)"),
    "d": ("date", "(ARRAY['2024-02-01', '0044-03-15 BC', '12000-01-01', 'infinity', NULL])[1 + i % 5]"),
    "ts": ("timestamp", "(ARRAY['2024-02-01 03:04:05.678', '1900-01-01', '0044-03-15 01:02 BC'])[1 + i % 3]"),
    "tz": (
        "timestamptz",
        "(ARRAY['2024-02-01 23:59:59.5Z', '1850-01-01 00:00Z', '0044-03-15 BC', '-infinity'])[1 + i % 4]",
    ),
    "ti": ("time", "(ARRAY['00:00', '24:00:00', '12:34:56.789'])[1 + i % 3]"),
    "tt": ("timetz", "(ARRAY['00:00+00', '24:00:00-03', '12:34:56.789+05:30:15'])[1 + i % 3]"),
    "iv": ("interval", "(ARRAY['30 days', '1 mon', '-1 day +02:03', '-00:00:00.1', '14 mon'])[1 + i % 5]"),
    "spans": ("tstzrange", "tstzrange('2024-02-01Z', '2024-02-03Z'::timestamptz + i % 3 * '1 h'::interval)"),
    "days": ("daterange", "daterange('2024-02-01', '2024-02-03'::date + i % 3)"),
    "spot": ("point", "point(0.1 + i % 3 / 3.0, 2)"),
    "of": ("regclass", "(ARRAY['pg_class', 'pg_type', 'mine'])[1 + i % 3]"),
    "raw": ("bytea", "decode(repeat(lpad(to_hex(i % 256), 2, '0'), 4), 'hex')"),
    "x": ("real[]", "ARRAY[i % 5, 0.1, 1e10]"),
    "xd": ("float8[]", "ARRAY[0.1 + 0.2, i % 3, 1e-7, -0.0]"),
    "words": ("text", "'The \\fox, jumps' || i % 9 || E' back\\\\slash [it]'"),
}  # fmt: skip
# Columns that are packed a second time, encoded by their types and not as categories.
AGAIN = ("f4", "f8", "n", "i4", "b", "d", "ts", "tz", "ti", "tt")
FINITE = "'NaN', 'Infinity', '-Infinity'"
ONE_HOT = {"encode": "one_hot"}
SAID = {
    **{name: ONE_HOT for name in TYPES if name not in ("raw", "x", "xd", "words")},
    "raw": {"shape": [4], "divide": 255, "input": "independent_var"},
    "x": {"input": "independent_var", "divide": 1e10},
    "xd": {"input": "independent_var"},
    "words": {"tokens": 6, "vocabulary": 40},
    **{f"{name}_again": {"parts": ["days", "month", "weekday", "hour"]} for name in ("ts", "tz", "ti", "tt")},
    "f8_again": {"scale": "log", "impute": "median"},
    "i4_again": {"scale": "robust"},
    "n_again": {"impute": "most_frequent"},
    "f4_again": {"scale": "quantile"},
    "photo": {"decode": [4, 4, 3]},
}


@contextmanager
def world(trial: Trial, settings: str) -> Iterator[None]:
    trial.sql(settings)
    try:
        yield
    finally:
        trial.sql("RESET ALL")


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.sql("CREATE TYPE mood AS ENUM ('sad', 'so so', 'null'); CREATE TABLE mine ()")
    made = ", ".join(f"({value})::{kind} AS {name}" for name, (kind, value) in TYPES.items())
    again = ", ".join(_again(name) for name in AGAIN)
    trial.sql(
        f"CREATE TABLE made AS SELECT s.*, {again} FROM (SELECT i AS id, {made},"
        " CASE WHEN i * 37 % 60 > 32 THEN 0.1 + 0.2::float8 ELSE 0.3 END AS y,"
        " '2024-02-01Z'::timestamptz + i / 3 * interval '1 h' AS moment,"
        " ('2024-02-01 00:00Z'::timestamptz + i % 3 * interval '1 day') AS at, i % 3 + 0.1 + 0.2::float8 AS w"
        f" FROM generate_series(1, {ROWS}) AS i) AS s"
    )
    trial.table(
        "photos", "id integer, photo bytea", [(i, picture(i % 50, (5, 4))) for i in range(1, ROWS + 1)]
    )
    trial.sql("CREATE VIEW seen AS SELECT m.*, p.photo FROM made AS m JOIN photos AS p USING (id)")
    trial.sql("CREATE VIEW few_rows AS SELECT * FROM seen WHERE id <= 240")
    pack(trial, "packed")
    trial.call("load_net", "nets", "packed", "linear")
    trial.select("configs", [1], [ADAM], ["batch_size=64"], "nets")
    trial.fit("packed", "models", "configs", 1, options={"backend": "jax"})


def _again(name: str) -> str:
    """Return SQL for a second copy of a column, with NULL in place of NaN and infinity."""
    value = f"s.{name}"
    if name in ("f4", "f8", "n"):
        value = f"CASE WHEN s.{name}::text NOT IN ({FINITE}) THEN s.{name} END"
    elif name in ("d", "tz"):
        value = f"CASE WHEN isfinite(s.{name}) THEN s.{name} END"
    return f"{value} AS {name}_again"


def pack(trial: Trial, name: str, source: str = "seen", **more: object) -> None:
    fresh(trial, name)
    options = {"columns": SAID, "task": "classification", "weight": "w", **more}
    listed = ", ".join([*TYPES, *(f"{name}_again" for name in AGAIN), "photo"])
    trial.pack(source, name, "y", listed, options=options, buffer_size=100)


def contents(trial: Trial, name: str) -> Rows:
    return trial.sql(f"SELECT md5(cerebro._text(p)) FROM {name} AS p ORDER BY p.buffer_id, p.__dist_key__")


def answers(trial: Trial) -> list[list[tuple[int, str, float]]]:
    """Return id, class and exact probability of each row, as predicted by table, by row and by query."""
    trial.sql("DROP TABLE IF EXISTS told")
    trial.call("madlib_predict", "models", "seen", "id", "*", "told", "response", mst_key=1)
    row = "SELECT s.id, p.class, {} FROM seen AS s, cerebro.predict('models', s) AS p"
    query = (
        "SELECT (p.source).id, p.class, {} FROM"
        " cerebro.predict_query('models', 'SELECT * FROM seen', NULL::seen) AS p"
    )
    sent = "encode(float8send({}), 'hex')"
    found = [
        trial.sql(f"SELECT id, class_value, {sent.format('prob')} FROM told"),
        *(trial.sql(form.format(sent.format("p.probability"))) for form in (row, query)),
    ]
    return [
        sorted((number, label, struct.unpack(">d", bytes.fromhex(data))[0]) for number, label, data in rows)
        for rows in found
    ]


def close(ours: list[tuple[int, str, float]], theirs: list[tuple[int, str, float]]) -> bool:
    same = zip(ours, theirs, strict=True)
    return all(a[:2] == b[:2] and math.isclose(a[2], b[2], abs_tol=1e-6) for a, b in same)


@pytest.mark.slow
@pytest.mark.postgresql
def test_three_forms_give_the_same_for_every_type_under_all_settings(trial: Trial) -> None:
    expected, *others = answers(trial)
    assert len({probability for *_, probability in expected}) > ROWS / 3
    assert all(close(expected, one) for one in others)
    for settings in WORLDS.values():
        with world(trial, settings):
            assert all(close(expected, one) for one in answers(trial)), settings


@pytest.mark.parametrize("settings", WORLDS.values(), ids=WORLDS)
def test_rows_are_packed_and_described_the_same(trial: Trial, settings: str) -> None:
    described = (
        "SELECT column_name, type, nulls, distinct_values, minimum, maximum, encode(float8send(mean), 'hex'),"
        " becomes, reason FROM cerebro.describe_columns('seen')"
    )
    of_packed = "SELECT to_jsonb(s) - 'output_table' - 'packed_versions' FROM {}_summary AS s"
    expected = contents(trial, "packed"), trial.sql(of_packed.format("packed")), trial.sql(described)
    with world(trial, settings):
        pack(trial, "again")
        found = trial.sql(described)
    assert (contents(trial, "again"), trial.sql(of_packed.format("again")), found) == expected


@pytest.mark.parametrize("settings", WORLDS.values(), ids=WORLDS)
def test_the_same_rows_are_held_back(trial: Trial, settings: str) -> None:
    ways = {
        "rows": {"validation": 0.3},
        "strata": {"validation": {"share": 0.3, "stratify": True}},
        "by": {"validation": {"share": 0.3, "by": "moment"}},
        "folds": {"folds": {"count": 3, "stratify": True}},
    }

    def held() -> list[Rows]:
        found = []
        for options in ways.values():
            pack(trial, "again", "few_rows", **options)
            found.append(contents(trial, "again"))
        trial.sql("DROP TABLE IF EXISTS parted, parted_train, parted_test")
        trial.sql("SELECT cerebro.train_test_split('few_rows', 'parted', 0.7, options => '{\"seed\": 3}')")
        return [*found, trial.sql("SELECT id FROM parted WHERE split = 1 ORDER BY id")]

    expected = held()
    with world(trial, settings):
        found = held()
    assert found == expected


KEYS = (["f8", "tz"], ["n", "iv"], ["f4", "d", "tt", "bc"])


@pytest.mark.postgresql
@pytest.mark.parametrize(("settings", "keys"), list(zip(WORLDS.values(), KEYS, strict=True)), ids=WORLDS)
def test_groups_are_found_again(trial: Trial, settings: str, keys: list[str]) -> None:
    fresh(trial, "grouped", "of_groups")
    trial.sql("DROP TABLE IF EXISTS told, small, few, few_summary")
    trial.pack("few_rows", "grouped", "y", "i4", options={"group_by": keys, "task": "classification"})
    trial.call("load_net", "small", "grouped", "linear")
    trial.select("few", [1], [ADAM], ["batch_size=64"], "small")
    row = "SELECT s.id, p.class FROM few_rows AS s, cerebro.predict('of_groups', s) AS p"
    query = (
        "SELECT (p.source).id, p.class"
        " FROM cerebro.predict_query('of_groups', 'TABLE few_rows', NULL::few_rows) AS p"
    )
    with world(trial, settings):
        trial.fit("grouped", "of_groups", "few", 1, options={"backend": "jax"})
    found = sorted(trial.sql(row))
    with world(trial, settings):
        trial.call("madlib_predict", "of_groups", "few_rows", "id", "i4", "told", "response")
        assert sorted(trial.sql(row)) == found
        assert sorted(trial.sql(query)) == found
        assert sorted(trial.sql("SELECT id, class_value FROM told")) == found
    assert len(found) == 240 and None not in {label for _, label in found}


def fresh(trial: Trial, *names: str) -> None:
    suffixes = ("", "_summary", "_validation", "_validation_summary", "_groups", "_info")
    trial.sql(f"DROP TABLE IF EXISTS {', '.join(name + suffix for name in names for suffix in suffixes)}")


@pytest.mark.parametrize("label", ["y", "at", "d", "iv"])
def test_class_values_are_written_the_same(trial: Trial, label: str) -> None:
    found = []
    for settings in ("RESET ALL", *WORLDS.values()):
        fresh(trial, "labelled")
        with world(trial, settings):
            trial.pack("seen", "labelled", label, "i4", options={"task": "classification"})
            trial.call("append_rows", "labelled", "seen")
        read = f"SELECT {label}_class_values::text[], {label}_class_counts FROM labelled_summary"
        found.append(trial.sql(read))
    assert all(one == found[0] for one in found)


def test_both_conversions_fix_the_same_settings(trial: Trial) -> None:
    rows = trial.sql("SELECT DISTINCT proconfig FROM pg_proc WHERE proname IN ('_json', '_text')")
    assert len(rows) == 1
