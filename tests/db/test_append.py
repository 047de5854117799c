"""append_rows adds rows to a packed table; its buffers and the rows of earlier runs do not change."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

import nets
from fixtures import Connect, Connection, MakeRole, execute
from trial import ADAM, Trial, blobs, rows_of

FEATURES = 6
PEOPLE = """CREATE TABLE people AS
SELECT CASE WHEN i % 5 = 0 THEN NULL ELSE 20 + i % 50 END AS age, 'city ' || i % 4 AS city, i % 2 = 0 AS gone
  FROM generate_series(1, 2000) AS i"""


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(301, features=FEATURES)
    rows = rows_of(x, y)
    trial.table("early", "x real[], y integer", rows[:200])
    trial.table("late", "x real[], y integer", rows[200:])
    trial.sql(PEOPLE)
    trial.sql(
        "CREATE TABLE others AS SELECT CASE WHEN age % 2 = 0 THEN age + 30 END AS age,"
        " CASE WHEN age % 3 = 0 THEN 'nowhere' ELSE city END AS city, gone FROM people LIMIT 1000"
    )
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM], ["batch_size=16"])


@pytest.fixture
def packed(trial: Trial) -> Iterator[str]:
    """Pack the table `early` into `p` with three segments, and drop `p` after the test."""
    trial.pack("early", "p", buffer_size=30, options={"segments": 3})
    yield "p"
    trial.sql("DROP TABLE p, p_summary")


def stored(trial: Trial, below: int | None = None) -> list[tuple[object, ...]]:
    """Return all buffers of the packed table `p`, or only buffers whose number is less than `below`."""
    rows = trial.sql("SELECT __dist_key__, buffer_id, x_shape, x, y FROM p ORDER BY buffer_id")
    return [(*row[:3], bytes(row[3]), bytes(row[4])) for row in rows if below is None or row[1] < below]


def test_rows_are_added_and_earlier_buffers_stay(trial: Trial, packed: str) -> None:
    before = stored(trial)
    assert trial.value("SELECT cerebro.append_rows('p', 'late')") == 2
    after = stored(trial)
    assert after[: len(before)] == before
    found = trial.read_row("SELECT total_rows, buffer_size, packed_versions FROM p_summary")
    assert found["total_rows"] == 301
    assert found["buffer_size"] <= 30
    assert [version["rows"] for version in found["packed_versions"]] == [200, 101]
    # The segments stay even, and the new rows are those that a validation table would have.
    sizes = [n for (n,) in trial.sql("SELECT sum(x_shape[1]) FROM p GROUP BY __dist_key__")]
    assert max(sizes) - min(sizes) <= 1
    trial.pack_validation("late", "v", "p")
    added, alike = ([x for _, part, _ in trial.buffers(table) for x in part.tolist()] for table in ("p", "v"))
    assert sorted(added[200:]) == sorted(alike)
    trial.sql("DROP TABLE v, v_summary")


def test_the_order_of_the_rows_has_no_say(trial: Trial, packed: str) -> None:
    trial.sql("SELECT cerebro.append_rows('p', 'late')")
    found = stored(trial)
    trial.sql("DROP TABLE p, p_summary")
    trial.pack("early", "p", buffer_size=30, options={"segments": 3})
    trial.sql("CREATE OR REPLACE VIEW turned AS SELECT * FROM late ORDER BY y, x DESC")
    trial.sql("SELECT cerebro.append_rows('p', 'turned')")
    assert stored(trial) == found


@pytest.mark.slow
def test_a_run_goes_on_with_the_version_that_it_began_with(trial: Trial, packed: str) -> None:
    trial.fit("p", "expected", "mst", 40)
    options = {"threads": 1, "seed": 7, "background": True}
    trial.call("madlib_fit_multiple_model", "p", "shifting", "mst", 40, options=options)
    begun = trial.value("SELECT cerebro.last_run()")
    until_visited(trial, begun)
    trial.sql("SELECT cerebro.append_rows('p', 'late')")
    assert trial.value("SELECT status FROM cerebro.runs WHERE run_id = %s", begun) == "running"
    trial.sql("SELECT cerebro.wait(%s)", begun)
    assert trial.weights("shifting") == trial.weights("expected")
    assert trial.value("SELECT packed_version FROM cerebro.runs WHERE run_id = %s", begun) == 1
    # The next one trains on all rows.
    after = trial.fit("p", "larger", "mst", 1)
    assert trial.value("SELECT packed_version FROM cerebro.runs WHERE run_id = %s", after) == 2
    assert trial.value('SELECT sum("rows") FROM cerebro.visits WHERE run_id = %s', after) == 301


@pytest.mark.slow
def test_a_run_is_resumed_with_its_own_version(trial: Trial, packed: str, connect: Connect) -> None:
    last = trial.fit("p", "undisturbed", "mst", 60)
    with closing(connect()) as other:
        thread = threading.Thread(target=cancelled, args=(other,))
        thread.start()
        until_visited(trial, last + 1)
        other.cancel()
        thread.join()
    trial.sql("SELECT cerebro.append_rows('p', 'late')")
    trial.sql("SELECT cerebro.resume(%s)", last + 1)
    assert trial.weights("broken") == trial.weights("undisturbed")


def cancelled(connection: Connection) -> None:
    with pytest.raises(psycopg2.errors.QueryCanceled):
        Trial(connection).fit("p", "broken", "mst", 60)


def until_visited(trial: Trial, run_id: int) -> None:
    deadline = time.monotonic() + 120
    while not trial.value("SELECT count(*) FROM cerebro.visits WHERE run_id = %s", run_id):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_warm_start_goes_on_with_old_and_new_rows(trial: Trial, packed: str) -> None:
    trial.fit("p", "warm", "mst", 2)
    before = trial.weights("warm")
    trial.sql("SELECT cerebro.append_rows('p', 'late')")
    run_id = trial.fit("p", "warm", "mst", 1, warm_start=True)
    assert trial.weights("warm") != before
    assert trial.value('SELECT sum("rows") FROM cerebro.visits WHERE run_id = %s', run_id) == 301
    assert trial.value("SELECT packed_version FROM cerebro.runs WHERE run_id = %s", run_id) == 2


def test_calls_at_the_same_time_come_one_after_the_other(trial: Trial, packed: str, connect: Connect) -> None:
    with closing(connect(autocommit=False)) as first, closing(connect()) as second:
        assert execute(first, "SELECT cerebro.append_rows('p', 'late')") == [(2,)]
        found: list[object] = []
        ask = "SELECT cerebro.append_rows('p', 'late')"
        thread = threading.Thread(target=lambda: found.extend(execute(second, ask)))
        thread.start()
        waits = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
        deadline = time.monotonic() + 60
        while not trial.value(waits, second.info.backend_pid):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        first.commit()
        thread.join()
        assert found == [(3,)]
    assert trial.value("SELECT total_rows FROM p_summary") == 402
    ids = [number for (number,) in trial.sql("SELECT buffer_id FROM p")]
    assert len(ids) == len(set(ids))


def test_what_fails_leaves_nothing(trial: Trial, packed: str) -> None:
    before, summary = stored(trial), trial.read_row("SELECT * FROM p_summary")
    trial.sql("CREATE OR REPLACE VIEW bad AS SELECT CASE WHEN y = 1 THEN NULL ELSE x END AS x, y FROM late")
    with pytest.raises(psycopg2.errors.NullValueNotAllowed, match='column "x" is NULL'):
        trial.sql("SELECT cerebro.append_rows('p', 'bad')")
    trial.sql("CREATE OR REPLACE VIEW none AS SELECT * FROM late WHERE y < 0")
    with pytest.raises(psycopg2.Error, match="has no rows"):
        trial.sql("SELECT cerebro.append_rows('p', 'none')")
    trial.sql("CREATE OR REPLACE VIEW narrow AS SELECT x[1:2] AS x, y FROM late")
    with pytest.raises(psycopg2.Error, match="shape"):
        trial.sql("SELECT cerebro.append_rows('p', 'narrow')")
    trial.sql("CREATE OR REPLACE VIEW nameless AS SELECT x AS z, y FROM late")
    with pytest.raises(psycopg2.errors.UndefinedColumn, match='no column "x"'):
        trial.sql("SELECT cerebro.append_rows('p', 'nameless')")
    with pytest.raises(psycopg2.errors.UndefinedTable):
        trial.sql("SELECT cerebro.append_rows('early', 'late')")
    assert stored(trial) == before
    assert trial.read_row("SELECT * FROM p_summary") == summary
    assert not trial.sql("SELECT FROM cerebro.drift WHERE packed_table LIKE '%p'")
    # The same call works if the column is named by independent_varname.
    assert trial.value("SELECT cerebro.append_rows('p', 'nameless', independent_varname => 'z')") == 2


def test_a_rollback_takes_all_of_it_back(trial: Trial, packed: str, connect: Connect) -> None:
    before = stored(trial)
    with closing(connect(autocommit=False)) as other:
        execute(other, "SELECT cerebro.append_rows('p', 'late')")
        other.rollback()
    assert stored(trial) == before
    assert trial.value("SELECT cerebro.append_rows('p', 'late')") == 2


def test_a_new_class_is_refused_or_takes_a_free_place(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE letters AS SELECT ARRAY[i, i % 3]::real[] AS x, chr(98 + i % 2) AS y"
        " FROM generate_series(1, 40) i"
    )
    trial.sql("CREATE TABLE more AS SELECT x, CASE WHEN y = 'b' THEN 'a' ELSE y END AS y FROM letters")
    trial.pack("letters", "tight")
    with pytest.raises(psycopg2.Error, match="does not have: a") as caught:
        trial.sql("SELECT cerebro.append_rows('tight', 'more')")
    assert "num_classes leaves room" in str(caught.value)
    trial.pack("letters", "roomy", num_classes=[4])
    trial.sql("SELECT cerebro.append_rows('roomy', 'more')")
    assert trial.value("SELECT y_class_values FROM roomy_summary") == ["b", "c", "a", None]
    counted = trial.read_row("SELECT y, y_shape FROM roomy WHERE buffer_id >= 2 ORDER BY buffer_id LIMIT 1")
    assert counted["y_shape"][1] == 4
    trial.sql("CREATE VIEW nulls AS SELECT x, NULL::text AS y FROM more")
    with pytest.raises(psycopg2.Error, match="NULL can only be the first class"):
        trial.sql("SELECT cerebro.append_rows('roomy', 'nulls')")


def test_what_shifted_is_told(trial: Trial) -> None:
    trial.pack("people", "pp", "gone", "*", options={"columns": "auto"})
    trial.sql(
        "CREATE VIEW alike AS SELECT age, city, gone FROM"
        " (SELECT *, row_number() OVER (ORDER BY age, city, gone) AS n FROM people) AS p WHERE n % 2 = 0"
    )
    trial.notices()
    trial.sql("SELECT cerebro.append_rows('pp', 'alike')")
    assert "differ from" not in trial.notices()
    of_these = "FROM cerebro.drift WHERE packed_table = 'public.pp'"
    assert trial.value(f"SELECT max(stability) {of_these}") < 0.05
    trial.sql("SELECT cerebro.append_rows('pp', 'others')")
    said = trial.notices()
    assert '"age"' in said
    assert "cerebro.drift" in said
    rows = trial.sql(
        "SELECT column_name, nulls_before, nulls, unseen_before, unseen, mean_before, mean, stability"
        f" {of_these} AND version = 3"
    )
    found = {row[0]: row[1:] for row in rows}
    assert set(found) == {"age", "city", "gone"}
    ages = trial.read_row(
        "SELECT (SELECT avg((age IS NULL)::int) FROM people)::float8 AS before,"
        " (SELECT avg(age) FROM people)::float8 AS mean_before,"
        " avg((age IS NULL)::int)::float8 AS nulls, avg(age)::float8 AS mean,"
        " avg((city = 'nowhere')::int)::float8 AS unseen FROM others"
    )
    nulls_before, nulls, _, _, mean_before, mean, stability = found["age"]
    assert (nulls_before, nulls) == pytest.approx((ages["before"], ages["nulls"]))
    assert (mean_before, mean) == pytest.approx((ages["mean_before"], ages["mean"]))
    assert stability > 0.25
    assert found["city"][2:4] == pytest.approx((0.0, ages["unseen"]))
    trial.sql("DROP TABLE pp, pp_summary")
    # If a packed table is dropped, its stored drift is deleted as well.
    assert not trial.sql(f"SELECT {of_these}")


def test_rights_and_policies_hold(trial: Trial, packed: str, connect: Connect, role: MakeRole) -> None:
    user = role()
    trial.sql(f"GRANT SELECT ON p, p_summary, early, late TO {user}")
    with closing(connect(user=user)) as theirs:
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="INSERT on the packed table"):
            execute(theirs, "SELECT cerebro.append_rows('p', 'late')")
        trial.sql(f"GRANT INSERT ON p TO {user}")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="p_summary"):
            execute(theirs, "SELECT cerebro.append_rows('p', 'late')")
        trial.sql(f"GRANT UPDATE ON p_summary TO {user}")
        trial.sql("ALTER TABLE late ENABLE ROW LEVEL SECURITY")
        trial.sql("CREATE POLICY few ON late USING (y <> 0)")
        try:
            assert execute(theirs, "SELECT cerebro.append_rows('p', 'late')") == [(2,)]
        finally:
            trial.sql("ALTER TABLE late DISABLE ROW LEVEL SECURITY")
            trial.sql("DROP POLICY few ON late")
        visible = trial.value("SELECT count(*) FROM late WHERE y <> 0")
        assert trial.value("SELECT total_rows FROM p_summary") == 200 + visible
        assert execute(theirs, "SELECT DISTINCT version FROM cerebro.drift") == [(2,)]
    other = role()
    with closing(connect(user=other)) as stranger:
        assert not execute(stranger, "SELECT FROM cerebro.drift")


def test_a_table_of_an_earlier_release_says_so(trial: Trial, packed: str) -> None:
    trial.sql("ALTER TABLE p_summary DROP COLUMN packed_versions")
    with pytest.raises(psycopg2.Error, match="does not record when its rows were packed") as caught:
        trial.sql("SELECT cerebro.append_rows('p', 'late')")
    assert "Pack the table again" in str(caught.value)
    # The packed table can still be trained on.
    trial.fit("p", "of_old", "mst", 1)


def test_rows_of_the_same_transaction_are_trained_on(trial: Trial, packed: str, connect: Connect) -> None:
    with closing(connect(autocommit=False)) as other:
        other.notices = []
        own = Trial(other)
        own.sql("SELECT cerebro.append_rows('p', 'late')")
        run_id = own.fit("p", "within", "mst", 1)
        other.commit()
    assert trial.value('SELECT sum("rows") FROM cerebro.visits WHERE run_id = %s', run_id) == 301
