"""cerebro.relate makes features over foreign keys from rows before each cut-off, and from no other rows."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from statistics import fmean, stdev
from typing import Any

import psycopg2
import pytest

from fixtures import Connect, MakeRole, Sql
from trial import Trial

ALL = ["count", "sum", "mean", "min", "max", "stddev", "last", "since_last", "distinct", "share_of_top"]
START = datetime(2026, 1, 1)
TIMES = '{"orders": "placed", "items": "added"}'
LABELS = "SELECT id, at, gone FROM labels"
Row = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def shop(trial: Trial) -> dict[str, list[Row]]:
    """Make four tables and labels; each customer has two cut-offs, and some orders lie exactly on one."""
    chance = random.Random(5)

    def moment() -> datetime:
        return START + timedelta(days=chance.randrange(200), microseconds=chance.randrange(10**10))

    shops = [{"shop": i, "region": f"r{i % 2}", "size": float(i)} for i in range(1, 5)]
    customers = [
        {"id": i, "age": chance.choice([None, 20 + i]), "joined": moment().date(), "home": 1 + i % 4}
        for i in range(1, 31)
    ]
    labels = [
        {"id": c["id"], "at": START + timedelta(days=days), "gone": (c["id"] + days) % 2 == 0}
        for c in customers
        for days in (60, 150)
    ]
    at = [one["at"] for one in labels]
    orders = [
        {
            "number": i,
            "customer": chance.choice([None, *range(1, 28)]),
            "shop": 1 + i % 4,
            "placed": chance.choice([None, *at[:2], *(moment() for _ in range(8))]),
            "amount": chance.choice([None, float(chance.randrange(100))]),
            "channel": chance.choice([None, "web", "shop", "phone"]),
        }
        for i in range(1, 301)
    ]
    items = [
        {"number": order["number"], "line": line, "added": moment(), "price": float(chance.randrange(50)),
         "kind": f"k{chance.randrange(5)}"}
        for order in orders
        for line in range(chance.randrange(4))
    ]  # fmt: skip
    kinds = {
        "shops": "shop integer PRIMARY KEY, region text, size real",
        "customers": "id integer PRIMARY KEY, age integer, joined date, home integer REFERENCES shops",
        "orders": "number integer PRIMARY KEY, customer integer REFERENCES customers,"
        " shop integer REFERENCES shops, placed timestamp, amount numeric, channel text",
        "items": "number integer REFERENCES orders, line integer, added timestamp, price real, kind text,"
        " PRIMARY KEY (number, line)",
        "labels": "id integer, at timestamp, gone boolean",
    }
    tables = {"shops": shops, "customers": customers, "orders": orders, "items": items, "labels": labels}
    for name, rows in tables.items():
        trial.table(name, kinds[name], [tuple(row.values()) for row in rows])
    return tables


def relate(trial: Trial, query: str = LABELS, table: str | None = "made", **more: Any) -> str:
    """Call cerebro.relate, by default for the entity `customers`, and return what the call returns."""
    trial.sql("DROP TABLE IF EXISTS made, made_summary")
    given = {"entity": "customers", "cutoff": "at", "times": TIMES, **more}
    named = "".join(f", {name} => %s" for name in given)
    return trial.value(f"SELECT cerebro.relate(%s, %s{named})", query, table, *given.values())


def rows_of(trial: Trial, statement: str) -> list[Row]:
    with trial.connection.cursor() as cursor:
        cursor.execute(statement)
        names = [column.name for column in cursor.description or []]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return one == other


NUMBERS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "sum": sum,
    "mean": fmean,
    "min": min,
    "max": max,
    "stddev": lambda values: stdev(values) if len(values) > 1 else None,
}
WORDS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "distinct": lambda values: len(set(values)),
    "share_of_top": lambda values: max(Counter(values).values()) / len(values),
}


def expected(
    label: str, rows: Sequence[Row], time: str, at: datetime, window: str
) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each feature that one path has at a cut-off, in plain Python."""
    before = [row for row in rows if row[time] is not None and row[time] < at]
    if window:
        before = [row for row in before if row[time] >= at - timedelta(days=30)]
    yield f"{label}_count{window}", len(before)
    last = max((row[time] for row in before), default=None)
    if not window:
        yield f"{label}_days_since_last", None if last is None else (at - last) / timedelta(days=1)
    newest = [row for row in before if row[time] == last]
    for column in ("amount", "price", "size", "channel", "kind", "region"):
        functions = NUMBERS if column in ("amount", "price", "size") else WORDS
        values = [row[column] for row in before if row.get(column) is not None]
        for name, function in functions.items():
            nothing = 0 if name in ("sum", "distinct") else None
            yield f"{label}_{name}_{column}{window}", function(values) if values else nothing
        if not window and len(newest) < 2:
            yield f"{label}_last_{column}", newest[0].get(column) if newest else None


def test_the_features_are_those_of_plain_python(trial: Trial, shop: dict[str, list[Row]]) -> None:
    relate(trial, aggregates=ALL, windows=["30 days", "all"], max_features=800)
    found = {(row["id"], row["at"]): row for row in rows_of(trial, "SELECT * FROM made")}
    assert len(found) == len(shop["labels"])
    by_number = {order["number"]: order for order in shop["orders"]}
    shops = {one["shop"]: one for one in shop["shops"]}
    compared = set()
    for label in shop["labels"]:
        row, at = found[label["id"], label["at"]], label["at"]
        (customer,) = (one for one in shop["customers"] if one["id"] == label["id"])
        orders = [one for one in shop["orders"] if one["customer"] == customer["id"]]
        placed = [one for one in orders if one["placed"] is not None and one["placed"] < at]
        items = [{**one, "amount": None} for one in shop["items"] if by_number[one["number"]] in placed]
        joined = datetime.combine(customer["joined"], datetime.min.time())
        wanted = {
            "customers_age": customer["age"],
            "customers_days_since_joined": (at - joined) / timedelta(days=1) if joined < at else None,
            "shops_size": shops[customer["home"]]["size"],
            "shops_region": shops[customer["home"]]["region"],
        }
        for window in ("", "_30_days"):
            wanted |= expected("orders", orders, "placed", at, window)
            wanted |= expected("orders_items", items, "added", at, window)
            parents = [{"placed": one["placed"], **shops[one["shop"]]} for one in orders]
            of_parents = expected("orders_shops", parents, "placed", at, window)
            wanted |= {name: value for name, value in of_parents if "size" in name or "region" in name}
        for name, value in wanted.items():
            if name in row:
                compared.add(name)
                assert same(row[name], value), (name, label, row[name], value)
    assert len(compared) > 50
    assert {"orders_items_share_of_top_kind_30_days", "orders_shops_mean_size"} <= compared
    assert {"orders_last_amount", "orders_items_last_kind", "orders_days_since_last"} <= compared


def test_the_statement_can_be_read_and_run(trial: Trial) -> None:
    relate(trial, windows=["30 days", "all"])
    statement = trial.value("SELECT statement FROM made_summary")
    made = rows_of(trial, "SELECT * FROM made")
    assert sorted(map(str, rows_of(trial, statement))) == sorted(map(str, made))
    shown = relate(trial, table=None, format="sql", windows=["30 days", "all"])
    inside = "FILTER (WHERE p.at >= p.__cutoff__ - interval '30 days')"
    assert f'count(*) {inside} AS "orders_count_30_days"' in shown
    assert len(rows_of(trial, shown)) == 60
    assert trial.value("SELECT to_regclass('made')") is None
    assert trial.value("SELECT count(*) FROM pg_class WHERE relname LIKE 'cerebro\\_related%%'") == 0


def test_what_tells_no_rows_apart_is_dropped_and_named(trial: Trial) -> None:
    trial.sql("ALTER TABLE customers ADD kind text DEFAULT 'same', ADD twin integer, ADD rare integer")
    trial.sql("UPDATE customers SET twin = 2 * age")
    try:
        trial.notices()
        relate(trial, depth=0, times=None)
        said = trial.notices()
        assert "customers_kind (constant)" in said
        assert "customers_rare (NULL in 60 of 60 rows)" in said
        trial.sql("UPDATE customers SET twin = age")
        relate(trial, depth=0, times=None)
        assert "customers_twin (the same as customers_age)" in trial.notices()
        assert set(trial.value("SELECT left_out FROM made_summary")) == {
            "customers_kind", "customers_twin", "customers_rare"
        }  # fmt: skip
    finally:
        trial.sql("ALTER TABLE customers DROP kind, DROP twin, DROP rare")


def test_no_more_features_are_made_than_asked_for(trial: Trial) -> None:
    trial.notices()
    assert relate(trial, max_features=5).endswith("public.made has 60 rows with 5 features")
    assert "more than max_features, 5" in trial.notices()
    columns = [name for name in rows_of(trial, "SELECT * FROM made")[0] if name not in ("id", "at", "gone")]
    # Features of short paths come first.
    assert columns[0] == "customers_age" and not any("items" in name for name in columns)
    comment = trial.value("SELECT col_description('made'::regclass, 6)")
    assert comment == "number of rows of orders before the cut-off"


def test_moments_with_and_without_a_zone_are_compared_in_the_zone_of_the_call(trial: Trial) -> None:
    trial.sql("SET timezone = 'Europe/Berlin'")
    try:
        trial.sql("CREATE TABLE zoned (customer integer REFERENCES customers, seen timestamptz)")
        # Noon in Berlin is eleven in UTC.
        trial.sql("INSERT INTO zoned VALUES (1, '2026-01-10 11:00+00'), (2, '2026-01-10 11:00+00')")
        rows = "(1, timestamp '2026-01-10 12:00:00'), (2, '2026-01-10 12:00:01')"
        # The shown statement is run, and on Greenplum it would hang if its query read no table.
        trial.sql(f"CREATE TABLE noons AS SELECT * FROM (VALUES {rows}) AS v (id, at)")
        query = "SELECT * FROM noons"
        more = {"omit": ["orders", "shops"], "times": '{"zoned": "seen"}', "aggregates": ["count"]}
        relate(trial, query, windows=["2 days"], **more)
        assert trial.sql("SELECT zoned_count_2_days FROM made ORDER BY id") == [(0,), (1,)]
        statement = trial.value("SELECT statement FROM made_summary")
        trial.sql("SET timezone = 'Asia/Tokyo'")
        assert [row["zoned_count_2_days"] for row in rows_of(trial, f"{statement} ORDER BY l.id")] == [0, 1]
    finally:
        trial.sql("RESET timezone")
        trial.sql("DROP TABLE IF EXISTS zoned, noons")


WRONG: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "no query": ({"query": " "}, "22004", "query is NULL or empty"),
    "no entity": ({"entity": "nobody"}, "42P01", "entity 'nobody' does not exist"),
    "no cut-off": ({"cutoff": None}, "22004", "cutoff is NULL or empty"),
    "another cut-off": ({"cutoff": "a"}, "22023", 'the query has no column "a", which cutoff names'),
    "a cut-off that is none": ({"cutoff": "gone"}, "42804", 'the cut-off "gone" is of type boolean'),
    "a cut-off that is NULL": (
        {"query": "SELECT id, NULL::timestamp AS at FROM labels"}, "22004", 'cut-off "at" is NULL in 60 rows'
    ),
    "no key": ({"query": "SELECT at FROM labels"}, "42703", 'the query has no column "id"'),
    "no time": ({"times": '{"orders": "placed"}'}, "22004", 'when a row of "public"."items" came to be'),
    "another time": ({"times": '{"orders": "plaved"}'}, "22023", 'Did you mean "placed"?'),
    "a time that is none": ({"times": '{"orders": "amount"}'}, "42804", "is of type numeric"),
    "times that are none": ({"times": '{"orders": 1}'}, "22023", "times is"),
    "too deep": ({"depth": 4}, "22023", "depth is 4"),
    "another aggregate": ({"aggregates": ["median"]}, "22023", "no aggregate is median"),
    "a window back in time": ({"windows": ["-1 day"]}, "22023", "the window -1 day has no length"),
    "a window that is none": ({"windows": ["soon"]}, "22007", "soon"),
    "no windows": ({"windows": []}, "22023", "windows is NULL or empty"),
    "many features": ({"max_features": 5000}, "22023", "max_features is 5000"),
    "another format": ({"format": "json"}, "22023", "option format is"),
    "a past without rows": (
        {"query": "SELECT id, date '1990-01-01' AS at FROM labels WHERE id = 1", "omit": ["shops"]}, "55000",
        "tells rows apart"
    ),
    "a key of another type": (
        {"query": "SELECT id::text, at FROM labels"}, "42804", 'the query gives "id" as text, and in'
    ),
    "no rows": ({"query": "SELECT id, at FROM labels WHERE FALSE"}, "55000", "the query gives no rows"),
    "no table": ({"table": None}, "22004", "output table is NULL or empty"),
    "a table that is there": ({"table": "labels"}, "42P07", "already exists"),
    "a key that cannot be read": ({"foreign_keys": ["a -> b"]}, "22023", "foreign key a -> b cannot be read"),
    "a key without its column": (
        {"foreign_keys": ["labels (who) REFERENCES customers (id)"]}, "42703", 'column "who" of the foreign'
    ),
    "a key to many": (
        {"foreign_keys": ["labels (id) REFERENCES orders (customer)"]}, "22023", "leads to more than one row"
    ),
    "a query that is none": ({"query": "SELECT id FROM"}, "42601", "syntax error"),
}  # fmt: skip


@pytest.mark.parametrize("said, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_and_leaves_nothing(
    trial: Trial, said: dict[str, Any], code: str, text: str
) -> None:
    with pytest.raises(psycopg2.Error) as caught:
        relate(trial, **said)
    assert (caught.value.pgcode, text in str(caught.value)) == (code, True), caught.value
    assert trial.value("SELECT to_regclass('made')") is None
    assert trial.value("SELECT count(*) FROM pg_class WHERE relname LIKE 'cerebro\\_related%%'") == 0


def test_each_table_is_read_with_the_callers_rights(trial: Trial, connect: Connect, role: MakeRole) -> None:
    user = role()
    # In two statements, because on Greenplum the owner would need the right to create schemas.
    trial.sql(f"CREATE SCHEMA {user}; ALTER SCHEMA {user} OWNER TO {user}")
    trial.sql(f"GRANT SELECT ON labels, customers, orders, shops TO {user}")
    with closing(connect(user=user)) as connection:
        theirs = Trial(connection)
        named = {"entity": "customers", "cutoff": "at", "times": TIMES}
        call = "SELECT cerebro.relate(%s, %s, entity => %s, cutoff => %s, times => %s"
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="items"):
            theirs.sql(f"{call})", LABELS, f"{user}.made", *named.values())
        theirs.sql(f"{call}, omit => ARRAY['items'])", LABELS, f"{user}.made", *named.values())
        assert theirs.value(f"SELECT count(orders_count) FROM {user}.made") == 60
        # A column that the role may not read makes no feature, and no error.
        trial.sql(f"REVOKE SELECT ON customers FROM {user}; GRANT SELECT (id, home) ON customers TO {user}")
        theirs.sql(f"{call}, omit => ARRAY['items'])", LABELS, f"{user}.less", *named.values())
        assert "customers_age" not in rows_of(theirs, f"SELECT * FROM {user}.less")[0]


def test_the_query_is_read_with_the_callers_search_path(trial: Trial) -> None:
    trial.sql("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.mine AS SELECT id, at FROM labels LIMIT 7")
    trial.sql("SET search_path = elsewhere, public")
    try:
        relate(trial, "SELECT * FROM mine -- all of it", table="public.made", depth=1)
        assert trial.value("SELECT count(*) FROM public.made") == 7
    finally:
        trial.sql("RESET search_path")


def test_names_that_are_no_words_stay_names(trial: Trial) -> None:
    strange = "Or\"d'ers; -- %s $1"
    quoted = '"' + strange.replace('"', '""') + '"'
    long = "x" * 63
    trial.sql("CREATE SCHEMA strange")
    trial.sql(f'CREATE TABLE strange.{quoted} ({quoted} integer PRIMARY KEY, "A b" text)')
    trial.sql(
        f'CREATE TABLE strange."{long}" (of integer REFERENCES strange.{quoted}, "when" date,'
        f' "{long}" integer, "it\'s" text)'
    )
    trial.sql(f"INSERT INTO strange.{quoted} SELECT i, 'a' || i % 2 FROM generate_series(1, 6) AS i")
    trial.sql(
        f"INSERT INTO strange.\"{long}\" SELECT 1 + i % 5, date '2026-01-01' + i, i, 'v' || i % 3"
        " FROM generate_series(1, 20) AS i"
    )
    query = f"SELECT {quoted}, date '2026-01-15' AS \"at '\" FROM strange.{quoted}"
    relate(
        trial, query, entity=f"strange.{quoted}", cutoff="at '",
        times=json.dumps({f'strange."{long}"': "when"}), windows=["5 days", "all"], aggregates=ALL,
    )  # fmt: skip
    row = rows_of(trial, "SELECT * FROM made")[0]
    assert f"{strange}_A b" in row
    assert all(len(name) <= 63 for name in row) and len(row) > 12


def test_two_keys_between_the_same_tables_and_a_key_of_two_columns(trial: Trial) -> None:
    trial.sql("CREATE TABLE places (land text, town text, people integer, PRIMARY KEY (land, town))")
    trial.sql(
        "CREATE TABLE trips (trip integer PRIMARY KEY, land text, town text, to_land text, to_town text,"
        " went timestamp, FOREIGN KEY (land, town) REFERENCES places,"
        " FOREIGN KEY (to_land, to_town) REFERENCES places)"
    )
    trial.sql("INSERT INTO places VALUES ('a', 'x', 1), ('a', 'y', 2), ('b', 'x', 3)")
    trial.sql(
        "INSERT INTO trips VALUES (1, 'a', 'x', 'a', 'y', '2026-01-01'),"
        " (2, 'a', 'x', 'b', 'x', '2026-01-02'), (3, 'a', 'y', 'a', 'x', '2026-01-03')"
    )
    query = "SELECT land, town, timestamp '2026-01-03' AS at FROM places"
    relate(trial, query, entity="places", times='{"trips": "went"}', aggregates=["count", "mean"])
    found = "SELECT trips_by_land_town_count, trips_by_to_land_to_town_count,"
    found += " trips_by_land_town_places_by_to_land_to_town_mean_people FROM made ORDER BY land, town"
    assert trial.sql(found) == [(2, 0, 2.5), (0, 1, None), (0, 1, None)]


def test_a_table_may_refer_to_itself_and_to_one_that_refers_to_it(trial: Trial) -> None:
    trial.sql("CREATE TABLE teams (team integer PRIMARY KEY, lead integer)")
    trial.sql(
        "CREATE TABLE people (id integer PRIMARY KEY, boss integer REFERENCES people, born date, pay integer,"
        " team integer REFERENCES teams)"
    )
    trial.sql("ALTER TABLE teams ADD FOREIGN KEY (lead) REFERENCES people")
    trial.sql("INSERT INTO teams VALUES (1, NULL), (2, NULL)")
    trial.sql(
        "INSERT INTO people SELECT i, nullif(i / 3, 0), date '2000-01-01' + i, i * 100, 1 + i % 2"
        " FROM generate_series(1, 30) AS i"
    )
    trial.sql("UPDATE teams SET lead = team")
    query = "SELECT id, date '2000-01-20' AS at FROM people"
    more = {"entity": "people", "aggregates": ["count", "max"], "times": '{"people": "born", "teams": null}'}
    relate(trial, query, **more, depth=3)
    row = trial.read_row("SELECT * FROM made WHERE id = 1")
    # People 1 to 18 were born before the cut-off: 3, 4 and 5 refer to 1, and 9 to 17 to these.
    assert (row["people_count"], row["people_people_count"]) == (3, 9)
    assert row["people_people_max_pay"] == 1700
    # A feature of the row that a foreign key refers to is named after the key.
    row = trial.read_row("SELECT * FROM made WHERE id = 7")
    assert (row["people_pay"], row["people_by_boss_pay"]) == (700, 200)


def test_children_may_be_empty_or_in_partitions_or_far_away(trial: Trial, sql: Sql) -> None:
    trial.sql("CREATE TABLE visits (customer integer REFERENCES customers, began timestamp, pages integer)"
              " PARTITION BY RANGE (began)")  # fmt: skip
    for first, last in (("2026-01-01", "2026-03-01"), ("2026-03-01", "2027-01-01")):
        trial.sql(
            f"CREATE TABLE visits_{first[5:7]} PARTITION OF visits FOR VALUES FROM ('{first}') TO ('{last}')"
        )
    trial.sql("CREATE TABLE calls (customer integer REFERENCES customers, rang timestamp, minutes integer)")
    trial.sql(
        "INSERT INTO visits SELECT 1 + i % 30, '2026-01-01'::timestamp + i * interval '1 day', i"
        " FROM generate_series(0, 99) AS i"
    )
    try:
        times = '{"orders": "placed", "items": null, "visits": "began", "calls": "rang"}'
        relate(trial, times=times, windows=["30 days"])
        assert trial.value("SELECT sum(visits_count_30_days) FROM made") == 30
        assert "calls_count_30_days" in trial.value("SELECT left_out FROM made_summary")
        labels = set(rows_of(trial, "SELECT * FROM made")[0])
        assert not any("visits_0" in name for name in labels)
    finally:
        trial.sql("DROP TABLE visits, calls")


def test_children_may_have_enums_numbers_that_are_none_and_names_of_the_statement(trial: Trial) -> None:
    trial.sql("CREATE TYPE mood AS ENUM ('glad', 'sad')")
    trial.sql(
        "CREATE TABLE talks (customer integer REFERENCES customers, at timestamp, mood mood, length real,"
        " __row__ integer, __cutoff__ text, k0 integer, v0 integer, turn integer, n integer)"
    )
    trial.sql(
        "INSERT INTO talks SELECT 1 + i % 30, '2026-01-01'::timestamp + i * interval '1 hour',"
        " (ARRAY['glad', 'sad', 'sad'])[1 + i / 30 % 3]::mood,"
        " CASE i / 30 WHEN 1 THEN 'NaN'::real WHEN 2 THEN '-inf' ELSE i END, i, i % 3, i, i, i, i"
        " FROM generate_series(0, 119) AS i"
    )
    more = {"omit": ["orders", "shops"], "times": '{"talks": "at"}', "aggregates": ALL, "max_features": 800}
    try:
        relate(trial, "SELECT id, at, id AS n, id AS v0, id AS k0 FROM labels", **more)
        found = trial.read_row("SELECT * FROM made WHERE id = 5 LIMIT 1")
        assert (found["talks_mean_length"], found["talks_max_length"]) == (49, 94)
        assert (found["talks_sum___row__"], found["n"]) == (4 + 34 + 64 + 94, 5)
        assert trial.value("SELECT left_out ->> 'talks_share_of_top_mood' FROM made_summary") == "constant"
        trial.sql("INSERT INTO talks (customer, at, mood) VALUES (5, '2026-01-02', 'glad')")
        relate(trial, "SELECT id, at FROM labels", **more)
        found = "SELECT DISTINCT id, talks_share_of_top_mood FROM made WHERE id IN (5, 6) ORDER BY id"
        assert trial.sql(found) == [(5, 0.6), (6, 0.5)]
    finally:
        trial.sql("DROP TABLE talks; DROP TYPE mood")


@pytest.mark.postgresql
def test_a_foreign_table_is_a_child_by_a_key_that_the_call_names(trial: Trial) -> None:
    trial.sql("CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw")
    lines = "printf '1,2026-01-05,10\\n1,2026-01-06,20\\n2,2026-06-01,40\\n'"
    trial.sql(
        "CREATE FOREIGN TABLE letters (customer integer, sent date, words integer) SERVER files"
        f" OPTIONS (program $${lines}$$, format 'csv')"
    )
    try:
        key = "letters (customer) REFERENCES customers (id)"
        relate(trial, foreign_keys=[key], times='{"letters": "sent"}', omit=["orders"], aggregates=["sum"])
        assert trial.sql("SELECT letters_sum_words FROM made WHERE id IN (1, 2) ORDER BY id, at") == [
            (30,), (30,), (0,), (0,)
        ]  # fmt: skip
    finally:
        trial.sql("DROP EXTENSION file_fdw CASCADE")


def test_many_children_of_one_parent_are_gone_through_in_the_order_of_time(trial: Trial) -> None:
    trial.sql("CREATE TABLE carriers (carrier integer PRIMARY KEY)")
    trial.sql(
        "CREATE TABLE flights (id integer PRIMARY KEY, carrier integer REFERENCES carriers,"
        " plane integer REFERENCES shops, left_at timestamp, late integer)"
    )
    trial.sql("INSERT INTO carriers VALUES (1)")
    trial.sql(
        "INSERT INTO flights SELECT i, 1, CASE WHEN i <= 8 THEN 1 + i % 2 END,"
        " timestamp '2026-01-01' + i * interval '1 minute', i % 7 FROM generate_series(1, 10100) AS i"
    )
    try:
        trial.notices()
        relate(
            trial, "SELECT id, left_at AS at FROM flights", entity="flights", times='{"flights": "left_at"}',
            aggregates=["count", "mean", "last"],
        )  # fmt: skip
        left_out = "since carriers_flights has 1.02e+08 pairs of rows: carriers_flights_last_late"
        assert left_out in trial.notices()
        wrong = (
            "SELECT count(*) FROM made JOIN (SELECT id, avg(late) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED"
            " PRECEDING AND 1 PRECEDING) AS mean FROM flights) AS f USING (id) WHERE carriers_flights_count"
            " <> id - 1 OR abs(carriers_flights_mean_late - mean) > 1e-9"
        )
        assert trial.value(wrong) == 0
        # A row whose time is its own cut-off is not counted.
        found = trial.sql("SELECT shops_flights_count FROM made WHERE id <= 8 ORDER BY id")
        assert found == [(0,), (0,), (1,), (1,), (2,), (2,), (3,), (3,)]
    finally:
        trial.sql("DROP TABLE flights, carriers")
