"""cerebro.relate and cerebro.labels with times and numbers outside the range of the server's types."""

from __future__ import annotations

import psycopg2
import pytest

from trial import Trial

CALL = "SELECT cerebro.relate(%s, 'far_rel', 'people', 'at', times => %s, windows => %s)"
QUERY = "SELECT id, date '2026-01-01' AS at FROM people"
TIMES = '{"visits": "at"}'


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.sql("CREATE TABLE people AS SELECT i AS id, i % 7 AS a FROM generate_series(1, 20) AS i")
    trial.sql("ALTER TABLE people ADD PRIMARY KEY (id)")
    trial.sql("CREATE TABLE visits (person integer REFERENCES people, at timestamp, paid double precision)")
    trial.sql(
        "INSERT INTO visits SELECT 1 + i % 20, timestamp '2025-06-01' + i * interval '1 day', i"
        " FROM generate_series(1, 100) AS i"
    )


def test_a_window_before_all_times_says_so(trial: Trial) -> None:
    with pytest.raises(psycopg2.errors.DatetimeFieldOverflow) as caught:
        trial.sql(CALL, QUERY, TIMES, ["7000 years", "all"])
    assert "A window begins before all times" in (caught.value.diag.message_hint or "")


@pytest.mark.parametrize("every, starts, shown", [("30", None, "00:00:30"), ("1 day", "-infinity", "1 day")])
def test_labels_without_end_are_refused(trial: Trial, every: str, starts: str | None, shown: str) -> None:
    call = (
        "SELECT cerebro.labels('people', 'count(visits) = 0', '3 days', %s, 'far_labels', starts => %s,"
        ' times => \'{"visits": "at"}\')'
    )
    trial.sql("SET statement_timeout = '9s'")
    try:
        with pytest.raises(psycopg2.errors.ProgramLimitExceeded, match=f"cut-offs from .* one every {shown}"):
            trial.sql(call, every, starts)
    finally:
        trial.sql("RESET statement_timeout")


def test_numbers_too_large_for_a_mean_say_so(trial: Trial) -> None:
    trial.sql("UPDATE visits SET paid = 1e200 WHERE paid = 50")
    try:
        with pytest.raises(psycopg2.errors.NumericValueOutOfRange) as caught:
            trial.sql(CALL, QUERY, TIMES, ["all"])
    finally:
        trial.sql("UPDATE visits SET paid = 50 WHERE paid > 1e199")
    assert "Leave such values out with a view" in (caught.value.diag.message_hint or "")


def test_a_call_that_makes_no_table_names_none(trial: Trial) -> None:
    """A call without features makes no summary, so its error does not refer to one."""
    with pytest.raises(psycopg2.Error, match="tells rows apart") as caught:
        trial.sql(CALL, "SELECT id, date '2020-01-01' AS at FROM people WHERE id = 7", TIMES,
                  ["all", "9 days", "8 days", "7 days", "6 days", "5 days"])  # fmt: skip
    assert "more" in str(caught.value.diag.message_detail)
    assert "summary" not in str(caught.value.diag.message_detail)


@pytest.mark.greenplum
def test_children_stay_on_their_segments(trial: Trial) -> None:
    """The plan moves labels to the segments of the entity and its children, and moves neither of these."""
    trial.sql(
        "CREATE TABLE guests (id integer PRIMARY KEY, town text) DISTRIBUTED BY (id);"
        "CREATE TABLE stays (id integer, guest integer REFERENCES guests, at timestamp, paid float8)"
        " DISTRIBUTED BY (guest);"
        "INSERT INTO guests SELECT i, 'town ' || i % 5 FROM generate_series(1, 2000) AS i;"
        "INSERT INTO stays SELECT i, 1 + i % 2000, '2024-01-01'::timestamp + i * '1 min'::interval, i % 97"
        " FROM generate_series(1, 20000) AS i;"
        "CREATE TABLE asked AS SELECT id, '2024-01-10'::timestamp AS at, id % 2 AS again FROM guests"
        " DISTRIBUTED BY (id);"
        "ANALYZE guests; ANALYZE stays; ANALYZE asked"
    )
    statement = trial.value(
        "SELECT cerebro.relate('SELECT id, at, again FROM asked', output_table => 'none', entity => 'guests',"
        " cutoff => 'at', depth => 1, times => '{\"stays\": \"at\"}', format => 'sql')"
    )
    plan = [line for (line,) in trial.sql(f"EXPLAIN (COSTS OFF) {statement}")]
    for table in ("stays", "guests"):
        places = [place for place, line in enumerate(plan) if f"Seq Scan on {table}" in line]
        assert places
        assert not [place for place in places if "Motion" in plan[place - 1]]
