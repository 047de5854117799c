"""cerebro.train_forecast and cerebro.forecast: nets and baselines forecast each series of a table."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import psycopg2
import pytest

from fixtures import Connect, MakeRole, Sql, execute
from trial import Trial

# Twenty shops whose sales repeat every ten days, which no baseline expects, and some unusual series.
SALES = """
SELECT setseed(0.5);
CREATE TABLE sales AS
SELECT 'shop ' || s AS shop, '2025-01-01'::date + d AS day,
       s * 10 + 0.05 * s * d + (2 + s % 5) * (ARRAY[0, 1, 3, 2, 4, 9, 7, 6, 2, 1])[(d + s) % 10 + 1]
       + 1.5 * (2 + s % 5) * (random() + random() + random() - 1.5) AS sold
FROM generate_series(1, 20) AS s, generate_series(0, 199) AS d;
CREATE TABLE kept AS SELECT * FROM sales WHERE day >= '2025-07-06';
DELETE FROM sales WHERE day >= '2025-07-06';
INSERT INTO sales
SELECT 'short', '2025-07-01'::date + d, 1 + d FROM generate_series(0, 4) AS d UNION ALL
SELECT 'constant', '2025-01-01'::date + d, 7 FROM generate_series(0, 99) AS d UNION ALL
SELECT 'few gaps', day, sold FROM sales WHERE shop = 'shop 3' AND extract(day FROM day) <> 5 UNION ALL
SELECT 'full of gaps', day, sold FROM sales WHERE shop = 'shop 3' AND extract(isodow FROM day) < 3 UNION ALL
SELECT 'twice', day, sold + n FROM sales, generate_series(1, 2) AS n WHERE shop = 'shop 3' UNION ALL
SELECT 'empty', day, NULL FROM sales WHERE shop = 'shop 3';
"""
WALKS = """
SELECT setseed(0.25);
CREATE TABLE walks AS
SELECT s AS id, '2026-03-01 00:00+00'::timestamptz + h * interval '1 hour' AS at,
       sum(random() - 0.5) OVER (PARTITION BY s ORDER BY h) AS price
FROM generate_series(1, 30) AS s, generate_series(1, 150) AS h;
"""
QUICK = {"configs": 3, "epochs": 9, "seed": 3, "nets": ["nlinear", "dlinear"]}
TRAIN = "SELECT * FROM cerebro.train_forecast('sales', 'day', 'sold', ARRAY['shop'], 7, %s, options => %s)"
ODD = {
    "short": ("short", 7), "constant": ("constant", 7), "few gaps": ("gaps filled", 7),
    "full of gaps": ("gaps", 0), "twice": ("duplicate stamps", 0), "empty": ("empty", 0),
}  # fmt: skip


@pytest.fixture(scope="module")
def board(trial: Trial) -> dict[str, Any]:
    """Train a forecast on `sales` once, and return the ranked nets and baselines, and the notices."""
    trial.sql(SALES)
    trial.notices()
    rows = trial.sql(TRAIN, "sales_f", json.dumps(QUICK))
    return {"rows": rows, "said": trial.notices()}


def test_a_net_that_knows_the_rhythm_answers(board: dict[str, Any]) -> None:
    answer, key, _, mase, _, coverage, best = board["rows"][0]
    by_name = {row[0]: row for row in board["rows"] if row[1] is None}
    assert best and key is not None and not any(row[-1] for row in board["rows"][1:])
    assert mase < 0.8 * by_name["seasonal naive"][3] and mase < by_name["drift"][3]
    assert 0.8 <= coverage <= 0.97
    said = board["said"]
    assert "26 series with a step of one day, a season of 7, windows of 28 steps" in said
    assert "1 short" not in said and "1 gaps filled" in said and "1 duplicate stamps" in said
    assert f"{answer} answers: MASE {mase:.3g} in " in said and " less error" in said


def keep(trial: Trial, forecast: str, table: str) -> None:
    """Store a forecast in a table; the call is in a subquery, because Greenplum refuses it otherwise."""
    trial.sql(
        f"CREATE TABLE {table} AS SELECT * FROM json_to_recordset("
        f"(SELECT json_agg(f) FROM cerebro.forecast('{forecast}') AS f)) AS f (series jsonb,"
        " forecast_time timestamptz, value double precision, lower double precision,"
        " upper double precision, status text)"
    )


def test_forecasts_follow_the_rows_and_hold_what_comes(trial: Trial, board: dict[str, Any]) -> None:
    keep(trial, "sales_f", "foretold")
    found = trial.sql(
        "SELECT avg((k.sold BETWEEN f.lower AND f.upper)::int)::float8, avg(abs(k.sold - f.value)),"
        " avg(abs(k.sold - p.sold)), count(*) FROM foretold AS f"
        " JOIN kept AS k ON f.series->>'shop' = k.shop AND f.forecast_time = k.day"
        " JOIN sales AS p ON p.shop = k.shop AND p.day = k.day - 7 WHERE f.status = 'ok'"
    )
    ((coverage, error, naive, count),) = found
    assert count == 140 and error < 0.9 * naive
    assert 0.8 <= coverage <= 0.97
    ((wide, narrow),) = trial.sql(
        "SELECT (SELECT avg(upper - lower) FROM cerebro.forecast('sales_f', level => 0.95)),"
        " (SELECT avg(upper - lower) FROM cerebro.forecast('sales_f', level => 0.5))"
    )
    assert wide > 1.5 * narrow


def test_each_series_has_a_status_and_none_stops_the_others(trial: Trial, board: dict[str, Any]) -> None:
    found = {
        shop: (status, rows)
        for shop, status, rows in trial.sql(
            "SELECT series->>'shop', status, count(value) FROM cerebro.forecast('sales_f') GROUP BY 1, 2"
        )
    }
    assert found == {**{f"shop {number}": ("ok", 7) for number in range(1, 21)}, **ODD}
    bounds = trial.sql(
        "SELECT value, lower, upper FROM cerebro.forecast('sales_f', 1) WHERE status IN ('constant', 'short')"
        " ORDER BY status"
    )
    assert bounds == [(7, 7, 7), (5, None, None)]


def test_new_rows_need_no_training(trial: Trial, board: dict[str, Any]) -> None:
    first = (
        "SELECT min(forecast_time)::date::text FROM cerebro.forecast('sales_f') WHERE series->>'shop' = %s"
    )
    assert trial.value(first, "shop 1") == "2025-07-06"
    trial.sql("INSERT INTO sales SELECT * FROM kept WHERE day < '2025-07-09'")
    trial.sql("INSERT INTO sales SELECT 'new shop', day, sold FROM sales WHERE shop = 'shop 4'")
    try:
        assert trial.value(first, "shop 1") == "2025-07-09" == trial.value(first, "new shop")
    finally:
        trial.sql("DELETE FROM sales WHERE day >= '2025-07-06' OR shop = 'new shop'")


def test_no_net_answers_for_random_walks(trial: Trial) -> None:
    trial.sql(WALKS)
    trial.notices()
    rows = trial.sql(
        "SELECT * FROM cerebro.train_forecast('walks', 'at', 'price', ARRAY['id'], 6, options => %s)",
        json.dumps(QUICK | {"nets": ["nlinear"], "configs": 2}),
    )
    assert set(rows[0][0].split(", ")) <= {"naive", "seasonal naive", "drift", "theta", "smoothing"}
    assert rows[0][-1] and rows[0][1] is None
    assert "No net is better than a baseline by more than chance" in trial.notices()
    found = trial.sql("SELECT series, value FROM cerebro.forecast('walks_forecast', 1) LIMIT 1")
    assert found[0][0] == {"id": 1}
    with pytest.raises(psycopg2.errors.FeatureNotSupported, match="which has no net to explain"):
        trial.sql("SELECT * FROM cerebro.explain_forecast('walks_forecast')")
    # A registered version keeps the baseline as the answer, and a net that is not used.
    trial.sql("SELECT cerebro.register('walks_forecast', 'walking')")
    assert trial.sql("SELECT series, value FROM cerebro.forecast('walking@1', 1) LIMIT 1") == found


def test_columns_that_are_known_ahead_say_what_comes(trial: Trial) -> None:
    # Promotions on random days add 30 to the sales; promotions of the next days are known.
    trial.sql(
        "CREATE TABLE promoted AS SELECT s AS item, '2026-01-01'::date + d AS day,"
        " CASE WHEN d < 120 THEN 10 * s + 30 * p + 4 * r END AS sold, p::int::bool AS promo"
        " FROM generate_series(1, 8) AS s, generate_series(0, 123) AS d,"
        " LATERAL (SELECT (hashint4extended(d, s) & 3 = 0)::int AS p,"
        " (hashint4extended(d, s + 9) & 1023) / 1024.0 AS r) AS q"
    )
    trial.sql("INSERT INTO promoted SELECT 9, day, sold, promo FROM promoted WHERE item = 8 AND sold > 0")
    board = trial.sql(
        "SELECT answer, mst_key, mase FROM cerebro.train_forecast('promoted', 'day', 'sold', ARRAY['item'],"
        " 4, 'promoted_f', columns => ARRAY['promo'], options => %s)",
        json.dumps(QUICK),
    )
    assert board[0][1] is not None and board[0][2] < 0.6
    keep(trial, "promoted_f", "foretold_promoted")
    gap = trial.value(
        "SELECT avg(f.value) FILTER (WHERE p.promo) - avg(f.value) FILTER (WHERE NOT p.promo)"
        " FROM foretold_promoted AS f JOIN promoted AS p"
        " ON p.item = (f.series->>'item')::int AND p.day = f.forecast_time WHERE f.status = 'ok'"
    )
    assert 20 < gap < 40
    # The promotion contributes most to the forecast of a day, whether it adds or subtracts.
    first = trial.sql(
        "SELECT e.column_name, (e.column_value = '1') = (e.contribution > 0), abs(e.contribution) > 5"
        " FROM cerebro.explain_forecast('promoted_f', top => 1) AS e"
    )
    assert first.count(("promo", True, True)) > 0.9 * len(first) and len(first) == 32
    unknown = "SELECT series, value, status FROM cerebro.forecast('promoted_f') WHERE status <> 'ok'"
    assert trial.sql(unknown) == [({"item": 9}, None, "columns unknown")]


def test_a_net_knows_the_weekday_and_what_never_changes(trial: Trial) -> None:
    # On Sundays the north sells more and the south less; windows are shorter than a week.
    trial.sql(
        "CREATE TABLE regions AS SELECT s AS item, (ARRAY['north', 'south'])[1 + s % 2] AS region,"
        " '2026-01-01'::date + d AS day, 50 + (hashint4extended(d, s) & 1023) / 256.0"
        " + CASE WHEN (d + 4) % 7 = 0 THEN 15 * (s % 2 * -2 + 1) ELSE 0 END AS sold"
        " FROM generate_series(1, 12) AS s, generate_series(0, 149) AS d"
    )
    options = QUICK | {"window": 4, "season": 1, "nets": ["Dense(32, 'relu')"], "epochs": 9, "configs": 2}
    board = trial.sql(
        "SELECT answer, mase FROM cerebro.train_forecast('regions', 'day', 'sold', ARRAY['item'], 7,"
        " 'regions_f', columns => ARRAY['region'], options => %s)",
        json.dumps(options),
    )
    scores = dict(board)
    assert board[0][1] < 0.6 * scores["naive"]
    document = trial.value("SELECT document FROM regions_f_forecast")
    assert document["static"][0]["words"] == ["north", "south"] and document["calendar"] == ["weekday"]
    # 31 May is a Sunday.
    trial.sql(
        "DELETE FROM regions WHERE day > '2026-05-30'; INSERT INTO regions"
        " SELECT 13, 'north', day, sold FROM regions WHERE item = 2"
    )
    found = dict(trial.sql("SELECT series->>'item', value FROM cerebro.forecast('regions_f', 1)"))
    assert found["2"] > 58 and found["13"] > 58 and found["3"] < 46
    # The contributions of region and weekday explain most of the forecast for the north.
    parts = dict(
        trial.sql(
            "SELECT e.column_name || coalesce(' ' || e.column_value, ''), e.contribution"
            " FROM cerebro.explain_forecast('regions_f', '{\"item\": 2}', 1, NULL) AS e"
            " WHERE e.column_name IN ('region', 'day')"
        )
    )
    assert sorted(name[:14] for name in parts) == ["day 2026-05-31", "region north"]
    assert min(parts.values()) > 2
    # A series whose region has changed since the training still gets a forecast.
    trial.sql("UPDATE regions SET region = 'west' WHERE item = 3 AND day > '2026-05-01'")
    assert len(trial.sql("SELECT FROM cerebro.forecast('regions_f', 1) WHERE value IS NOT NULL")) == 13


def test_time_may_be_a_whole_number(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE cycles AS SELECT 'm' || s AS machine, 10 * n AS cycle, sin(n * 0.7 + s) + s AS load"
        " FROM generate_series(1, 5) AS s, generate_series(1, 90) AS n"
    )
    trial.sql(
        "SELECT * FROM cerebro.train_forecast('cycles', 'cycle', 'load', ARRAY['machine'], 3, 'cycles_f',"
        " options => %s)",
        json.dumps(QUICK | {"nets": ["nlinear"], "configs": 2, "window": 12}),
    )
    found = trial.sql(
        "SELECT forecast_time, forecast_number, value, status FROM cerebro.forecast('cycles_f', history => 2)"
        " WHERE series->>'machine' = 'm1' ORDER BY 2"
    )
    assert [row[:2] for row in found] == [(None, number) for number in (890, 900, 910, 920, 930)]
    assert [row[3] for row in found] == ["known", "known", "ok", "ok", "ok"]
    assert (
        abs(found[1][2] - trial.value("SELECT load FROM cycles WHERE machine = 'm1' AND cycle = 900")) < 1e-9
    )
    assert trial.value("SELECT pg_typeof(min(origin))::text FROM cycles_f_windows") == "bigint"
    trial.sql("CREATE TABLE late AS SELECT cycle + (1::bigint << 60) AS cycle, load FROM cycles")
    with pytest.raises(psycopg2.Error, match="has times beyond 9007199254740992"):
        trial.sql("SELECT * FROM cerebro.train_forecast('late', 'cycle', 'load')")


def test_a_call_that_is_cancelled_leaves_nothing(trial: Trial, board: dict[str, Any]) -> None:
    trial.sql("SET statement_timeout = '400ms'")
    try:
        with pytest.raises(psycopg2.errors.QueryCanceled):
            trial.sql(TRAIN, "cancelled", "{}")
    finally:
        trial.sql("RESET statement_timeout")
    assert not trial.sql("SELECT FROM pg_class WHERE relname LIKE 'cancelled%%'")
    assert not trial.sql("SELECT FROM cerebro.runs WHERE model_table LIKE '%%cancelled%%'")


def test_a_registered_forecast_goes_on_without_its_tables(trial: Trial, board: dict[str, Any]) -> None:
    before = trial.sql("SELECT * FROM cerebro.forecast('sales_f') ORDER BY series, forecast_time")
    assert trial.value("SELECT cerebro.register('sales_f', 'sold')") == 1
    for name in ("sold@1", "sold"):
        found = trial.sql("SELECT * FROM cerebro.forecast(%s) ORDER BY series, forecast_time", name)
        assert found == before
    with pytest.raises(psycopg2.errors.UndefinedObject, match="nothing"):
        trial.sql("SELECT * FROM cerebro.forecast('nothing@1')")


def test_a_registered_forecast_is_trained_anew(trial: Trial, board: dict[str, Any]) -> None:
    """A version with windows of two steps is worse than the next version, with windows of four weeks."""
    trial.sql("SELECT cerebro.register('sales_f', 'anew')")
    trial.sql("INSERT INTO sales SELECT * FROM kept")
    call = "SELECT * FROM cerebro.retrain('anew', promote => %s, options => %s)"
    try:
        worse = {"configs": 1, "epochs": 1, "window": 2, "nets": ["nlinear"]}
        first = trial.read_row(call, "always", json.dumps(worse))
        second = trial.read_row(call, "if_better", json.dumps({"window": 28, "seed": 4}))
    finally:
        trial.sql("DELETE FROM sales WHERE day >= '2025-07-06'")
    assert (first["version"], first["promoted"], first["previous"], first["measured"]) == (2, True, 1, "mase")
    assert first["reason"] == 'promote is "always"; it is not better'
    assert (second["version"], second["promoted"], second["previous"]) == (3, True, 2)
    assert second["reason"] == "it is better by more than noise"
    assert second["value"] < second["previous_value"]
    # 21 series (20 shops and a series with few gaps) with 22 forecast starts each in four weeks.
    assert second["judged_rows"] == 21 * 22
    document = "SELECT lineage -> 'forecast' FROM cerebro.model_versions WHERE name = 'anew' AND version = 3"
    found = trial.value(document)
    assert (found["source"], found["window"], found["options"]["epochs"]) == ("public.sales", 28, 1)
    assert trial.value("SELECT count(value) FROM cerebro.forecast('anew', 1)") == 23
    assert trial.value("SELECT count(*) FROM pg_class WHERE relname LIKE 'cerebro\\_retrain%%'") == 0


def test_a_caller_whose_session_ends_leaves_nothing(
    trial: Trial, connect: Connect, board: dict[str, Any]
) -> None:
    """The whole call is one transaction: if its session ends, no tables and no run remain."""
    caller = connect()
    pid = execute(caller, "SELECT pg_backend_pid()")[0][0]
    ended = list[str]()

    def train() -> None:
        try:
            execute(caller, TRAIN, "ended", json.dumps(QUICK))
        except psycopg2.OperationalError as error:
            ended.append(str(error))

    thread = threading.Thread(target=train)
    thread.start()
    # Wait until the call makes its tables.
    made = "SELECT FROM pg_locks WHERE pid = %s AND mode = 'AccessExclusiveLock' AND locktype = 'relation'"
    while thread.is_alive() and not trial.sql(made, pid):
        time.sleep(0.01)
    trial.sql("SELECT pg_terminate_backend(%s)", pid)
    thread.join()
    assert len(ended) == 1
    assert not trial.sql("SELECT FROM pg_class WHERE relname LIKE 'ended%%'")
    assert not trial.sql("SELECT FROM cerebro.runs WHERE model_table LIKE '%%ended%%'")


# Calls that take a model of rows. {} is a version of a forecast, or the table of its nets.
OF_ROWS = {
    "importance": "SELECT * FROM cerebro.importance('{}', 'sales')",
    "check": "SELECT * FROM cerebro.check('{}', 'sales')",
    "evaluate_by": "SELECT * FROM cerebro.evaluate_by('{}', 'sales', ARRAY['shop'])",
    "worst_rows": "SELECT * FROM cerebro.worst_rows('{}', 'sales')",
    "inspect_net": "SELECT * FROM cerebro.inspect_net('{}', 'sales')",
    "smooth": "SELECT * FROM cerebro.smooth('{}', NULL, 'items', 'items', 'id', 'id', 'id', 'id')",
    "explain_predict": "SELECT e.* FROM sales AS s, cerebro.explain_predict('{}', s) AS e",
    "predict": "SELECT p.* FROM sales AS s, cerebro.predict('{}', s) AS p",
    "predict an array": "SELECT p.* FROM cerebro.predict('{}', NULL, ARRAY[1.0, 2.0]) AS p",
    "predict_query": "SELECT * FROM cerebro.predict_query('{}', 'SELECT * FROM sales', NULL::sales)",
}
# Calls that refuse a version of a forecast, but accept its table of nets with packed windows.
OF_PACKED_ROWS = {
    "predict_related": "SELECT * FROM cerebro.predict_related('{}', 'SELECT * FROM sales')",
    "madlib_predict": "SELECT cerebro.madlib_predict('{}', 'sales', 'shop', 'sold', 'predicted')",
    "madlib_evaluate": "SELECT cerebro.madlib_evaluate('{}', 'sales_f_packed_validation', 'measured')",
    "confusion_matrix": "SELECT cerebro.confusion_matrix('{}', 'sales_f_packed_validation')",
    "ensemble": "SELECT cerebro.ensemble('{}', 'ensemble')",
    "promote": "SELECT cerebro.promote('of_rows', 1, if_better_on => 'sales_f_packed_validation')",
}


@pytest.fixture(scope="module")
def of_rows(trial: Trial, board: dict[str, Any]) -> str:
    """Register the forecast `sales_f`, and return the reference of its first version."""
    trial.sql("CREATE TABLE items AS SELECT 1 AS id; SELECT cerebro.register('sales_f', 'of_rows')")
    return "of_rows@1"


def named(calls: dict[str, str]) -> list[Any]:
    """Return test parameters for the calls; calls that predict in a query are not tested on Greenplum."""
    mark = pytest.mark.postgresql
    return [
        pytest.param(call, id=name, marks=[mark] * name.startswith(("predict", "explain")))
        for name, call in calls.items()
    ]


@pytest.mark.parametrize("call", named(OF_ROWS | OF_PACKED_ROWS))
def test_what_takes_a_model_of_rows_says_that_a_version_is_a_forecast(
    trial: Trial, of_rows: str, call: str
) -> None:
    with pytest.raises(psycopg2.errors.WrongObjectType, match=f"{of_rows} is a forecast") as caught:
        trial.sql(call.format(of_rows))
    assert f"Use cerebro.forecast('{of_rows}')." in str(caught.value)


@pytest.mark.parametrize("call", named(OF_ROWS))
def test_what_takes_a_model_of_rows_says_that_a_table_has_the_nets_of_a_forecast(
    trial: Trial, of_rows: str, call: str
) -> None:
    with pytest.raises(psycopg2.errors.WrongObjectType, match="sales_f is a forecast") as caught:
        trial.sql(call.format("sales_f"))
    name = str(caught.value).partition("Use cerebro.forecast('")[2].partition("'")[0]
    assert trial.sql("SELECT FROM cerebro.forecast(%s, 1)", name)


def test_a_copy_of_a_forecast_forecasts_and_a_model_of_rows_does_not(trial: Trial, of_rows: str) -> None:
    trial.sql("SELECT cerebro.register(%s, 'copied')", of_rows)
    call = "SELECT * FROM cerebro.forecast(%s) ORDER BY series, forecast_time"
    assert trial.sql(call, "copied@1") == trial.sql(call, of_rows)
    key = trial.value(
        "SELECT min(m.mst_key) FROM sales_f AS m, sales_f_forecast AS f"
        " WHERE m.mst_key <> (f.document ->> 'mst_key')::integer"
    )
    trial.sql("SELECT cerebro.register('sales_f', 'windows_net', %s)", key)
    with pytest.raises(psycopg2.errors.WrongObjectType, match="windows_net@1 is no forecast"):
        trial.sql(call, "windows_net@1")


WRONG = {
    "no table": ("'nothing', 'day', 'sold'", "42P01", "does not exist"),
    "no time": ("'sales', 'dya', 'sold'", "42703", 'column "dya" does not exist'),
    "a text as time": ("'sales', 'shop', 'sold'", "42804", "is no time"),
    "a text as value": ("'sales', 'day', 'shop'", "42804", "cannot be forecast"),
    "the value as a column": ("'sales', 'day', 'sold', columns => '{sold}'", "22023", "is the value"),
    "a text that changes": ("'sales', 'day', 'sold', columns => '{shop}'", "42804", "changes within series"),
    "NULL in columns": ("'sales', 'day', 'sold', columns => '{NULL}'", "22004", "columns holds NULL"),
    "NULL in series": ("'sales', 'day', 'sold', ARRAY[NULL]", "22004", "series holds NULL"),
    "no horizon": ("'sales', 'day', 'sold', horizon => NULL", "22004", "horizon is NULL"),
    "horizon 0": ("'sales', 'day', 'sold', horizon => 0", "22023", "horizon is 0"),
    "an option": ("""'sales', 'day', 'sold', options => '{"windwo": 3}'""", "22023", "windwo"),
    "no budget": ("'sales', 'day', 'sold', budget => '0'", "22023", "budget is"),
    "a name that is taken": ("'sales', 'day', 'sold', name => 'sales_f'", "42P07", "already exists"),
    "several series": ("'sales', 'day', 'sold'", "55000", r"series => ARRAY\["),
    "too long": ("'sales', 'day', 'sold', ARRAY['shop'], 100", "55000", "no series of .* is long enough"),
}


@pytest.mark.parametrize("said, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_before_any_work(
    sql: Sql, board: dict[str, Any], said: str, code: str, text: str
) -> None:
    before = sql("SELECT count(*) FROM pg_class")
    with pytest.raises(psycopg2.Error, match=text) as caught:
        sql(f"SELECT cerebro.train_forecast({said})")
    assert caught.value.pgcode == code
    assert sql("SELECT count(*) FROM pg_class") == before


REFUSED = {
    "no forecast": ("forecast('nothing')", "42P01", "forecast nothing does not exist"),
    "no name": ("forecast(NULL)", "22004", "name is NULL"),
    "too far": ("forecast('sales_f', 8)", "22023", "horizon is 8, and sales_f was trained for 7"),
    "too sure": ("forecast('sales_f', level => 1)", "22023", "level is 1"),
    "no series": ("""explain_forecast('sales_f', '{"shop": 1}')""", "22023", "no series has {.shop.: 1}"),
    "no columns": ("explain_forecast('sales_f', '[1]')", "22023", "which is .1., and must name columns"),
    "no parts": ("explain_forecast('sales_f', top => 0)", "22023", "top must be at least 1"),
}


@pytest.mark.parametrize("call, code, text", REFUSED.values(), ids=REFUSED)
def test_a_forecast_that_cannot_be_is_refused(
    sql: Sql, board: dict[str, Any], call: str, code: str, text: str
) -> None:
    with pytest.raises(psycopg2.Error, match=text) as caught:
        sql(f"SELECT * FROM cerebro.{call}")
    assert caught.value.pgcode == code


def test_parts_of_a_forecast_add_up_to_it(trial: Trial, board: dict[str, Any]) -> None:
    trial.notices()
    found = trial.sql(
        "SELECT e.series->>'shop', e.forecast_time, min(e.value), max(e.value), min(e.baseline),"
        " min(e.baseline) + sum(e.contribution), max(e.approximation_error), count(*)"
        " FROM cerebro.explain_forecast('sales_f', top => NULL) AS e GROUP BY 1, 2"
    )
    assert len(found) == 7 * 21 and {row[-1] for row in found} == {29}
    assert all(low == high and error < 0.01 for _, _, low, high, _, _, error, _ in found)
    assert [row[5] for row in found] == pytest.approx([row[2] for row in found], rel=1e-4)
    assert "5 of 26 series are left out" in trial.notices()


def test_the_name_of_the_source_is_not_that_of_its_forecast(trial: Trial, board: dict[str, Any]) -> None:
    """cerebro.forecast takes the name of a forecast, such as things_forecast, not its source's, things."""
    trial.sql("CREATE TABLE things_forecast AS TABLE sales_f")
    wrong = "SELECT * FROM cerebro.forecast('things')"
    with pytest.raises(psycopg2.errors.UndefinedTable, match="forecast things does not exist") as caught:
        trial.sql(wrong)
    assert caught.value.diag.message_hint == "cerebro.train_forecast makes one."
    trial.sql("CREATE TABLE things_forecast_forecast AS TABLE sales_f_forecast")
    with pytest.raises(psycopg2.errors.UndefinedTable, match="forecast things does not exist") as caught:
        trial.sql(wrong)
    assert caught.value.diag.message_hint == "Did you mean things_forecast?"


def test_others_forecast_with_their_own_rights(
    trial: Trial, sql: Sql, role: MakeRole, connect: Connect, board: dict[str, Any]
) -> None:
    other = role()
    user = connect(user=other)
    call = "SELECT count(value) FROM cerebro.forecast('public.sales_f', 1)"
    for grant in ("sales_f_forecast", "sales", "sales_f, sales_f_info, sales_f_summary"):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            execute(user, call)
        trial.sql(f"GRANT SELECT ON {grant} TO {other}")
    assert execute(user, call) == [(23,)]
    # A forecast whose document names another role's view is refused: it would run code as the caller.
    trial.sql("CREATE VIEW trap AS SELECT * FROM sales")
    trial.sql(f"GRANT SELECT ON trap TO {other}")
    rename = "UPDATE sales_f_forecast SET document = jsonb_set(document, '{source}', to_jsonb(%s::text))"
    trial.sql(rename, "public.trap")
    try:
        with pytest.raises(psycopg2.Error, match="somebody else owns it"):
            execute(user, call)
        assert trial.value(call) == 23
        trial.sql("SELECT cerebro.register('sales_f', 'trapped')")
        trial.sql("SELECT cerebro.grant_model('trapped', %s, 'manage')", other)
        with pytest.raises(psycopg2.Error, match="trap is no table, and somebody else owns it"):
            execute(user, "SELECT * FROM cerebro.retrain('trapped')")
    finally:
        trial.sql(rename, "public.sales")
