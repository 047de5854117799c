"""Runs on tables that only the caller's transaction sees: other sessions read the rows from a file."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

import nets
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.store.runs.handed import HandedPlace, HandedRows, refusing_full_disk
from trial import ADAM, Trial, blobs, rows_of

# A cluster hands no rows over. Few rows train in the caller.
pytestmark = [pytest.mark.postgresql, pytest.mark.fresh_caller, pytest.mark.slow]
ROWS = 2600


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(ROWS, features=3)
    trial.table("rows", "x real[], y integer", rows_of(x, y))
    trial.model(nets.mlp(3))
    trial.select("mst", [1], [ADAM], ["batch_size=64,epochs=1", "batch_size=128,epochs=1"])
    trial.pack("rows", "packed", buffer_size=300)
    trial.fit("packed", "out", "mst", 2, validation_table="packed")


def of_run(trial: Trial, run_id: int, what: str) -> str:
    return trial.value(f"SELECT {what} FROM cerebro.runs WHERE run_id = %s", run_id)


@pytest.mark.parametrize("made", ["CREATE TABLE", "CREATE TEMP TABLE"])
def test_they_leave_the_same_bits(trial: Trial, made: str) -> None:
    trial.notices()
    trial.sql("BEGIN")
    if made == "CREATE TEMP TABLE":
        # A packed table that only this session sees, as functions make it in pg_temp.
        for end in ("", "_summary"):
            trial.sql(f"CREATE TEMP TABLE own{end} AS SELECT * FROM packed{end}")
        trial.sql("UPDATE own_summary SET output_table = 'own'")
    else:
        trial.pack("rows", "own", buffer_size=300)
    run_id = trial.fit("own", "by_handing", "mst", 2, validation_table="packed")
    found = trial.weights("by_handing")
    sessions = trial.value("SELECT count(DISTINCT pid) FROM cerebro.visits WHERE run_id = %s", run_id)
    trial.sql("ROLLBACK")
    assert found == trial.weights("out")
    assert "uses only this session" not in trial.notices()
    assert of_run(trial, run_id, "topology") == "local"
    assert sessions == 2


def test_few_rows_are_worth_no_sessions(trial: Trial) -> None:
    trial.sql("BEGIN; CREATE TABLE few AS SELECT * FROM rows LIMIT 1900")
    trial.pack("few", "few_packed")
    trial.notices()
    trial.fit("few_packed", "few_out", "mst", 1)
    trial.sql("ROLLBACK")
    assert "uses only this session" in trial.notices()


def test_a_server_without_room_for_sessions_trains_in_the_callers(trial: Trial, database: str) -> None:
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        lone = Trial(connection)
        lone.sql(f"ALTER DATABASE {database} CONNECTION LIMIT 1")
        try:
            lone.sql("BEGIN")
            lone.pack("rows", "alone", buffer_size=300)
            run_id = lone.fit("alone", "by_one", "mst", 2, validation_table="packed")
            assert of_run(lone, run_id, "topology") == "inline"
            assert "there is no room for the sessions" in lone.notices()
            assert lone.weights("by_one") == trial.weights("out")
            lone.sql("COMMIT")
        finally:
            trial.sql(f"ALTER DATABASE {database} CONNECTION LIMIT -1")


def test_nothing_is_left_of_a_run_that_fails(trial: Trial) -> None:
    before = trial.sql("SELECT run_id FROM cerebro.runs")
    trial.sql("BEGIN")
    trial.pack("rows", "own", buffer_size=300)
    trial.sql("SET LOCAL statement_timeout = '1s'")
    with pytest.raises(psycopg2.errors.QueryCanceled):
        trial.fit("own", "cut_off", "mst", 100_000)
    trial.sql("ROLLBACK")
    assert trial.sql("SELECT run_id FROM cerebro.runs") == before


def test_a_run_goes_on_when_its_tables_are_committed(trial: Trial) -> None:
    """A run that is resumed after the commit reads its rows from the tables, because the file is gone."""
    trial.sql("BEGIN")
    trial.pack("rows", "kept", buffer_size=300)
    trial.sql("SAVEPOINT packed")
    run_id = trial.fit("kept", "again", "mst", 1, validation_table="packed")
    trial.sql("ROLLBACK TO packed; COMMIT")
    # The last visit is undone by hand, as if a crash had lost it.
    for table in ("_visit", "_state"):
        trial.sql(f"DELETE FROM cerebro.{table} WHERE run_id = %s AND mst_key = 1 AND step = 2", run_id)
    trial.sql("DELETE FROM cerebro._metric WHERE run_id = %s AND mst_key = 1", run_id)
    trial.sql("SELECT cerebro.resume(%s)", run_id)
    trial.fit("kept", "undisturbed", "mst", 1, validation_table="packed")
    assert trial.weights("again") == trial.weights("undisturbed")


def test_a_full_disk_is_refused() -> None:
    refused = pytest.raises(CerebroError, match="No space left")
    with refused as caught, refusing_full_disk(), Path("/dev/full").open("wb") as file:
        file.write(b"rows")
    assert caught.value.sqlstate == "53100"


def test_a_process_that_took_the_number_of_another_hands_nothing(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.write(b"x" * 100)
        file.flush()
        place = HandedPlace(os.getpid(), file.fileno(), "00" * 16)
        assert HandedRows.open(place) is None
    assert HandedRows.open(place) is None


def test_train_shares_its_rows(trial: Trial) -> None:
    options = {"nets": "tabular", "configs": 2, "epochs": 3, "single": True}
    trial.notices()
    trial.sql("SELECT * FROM cerebro.train('rows', 'y', 'one_call', '30 s', %s)", json.dumps(options))
    assert "uses only this session" not in trial.notices()
    run_id = trial.value("SELECT run_id FROM one_call_summary")
    assert of_run(trial, run_id, "topology") == "local"


def test_runs_of_both_kinds_go_together_in_one_transaction(trial: Trial) -> None:
    """A run inside the caller's session and a run with other sessions do not wait for each other's locks."""
    trial.sql("BEGIN; SET LOCAL statement_timeout = '60s'; CREATE TABLE few AS SELECT * FROM rows LIMIT 1900")
    trial.pack("few", "few_packed")
    first = trial.fit("few_packed", "few_out", "mst", 1)
    trial.pack("rows", "own", buffer_size=300)
    second = trial.fit("own", "second", "mst", 1, validation_table="packed")
    assert [of_run(trial, run_id, "topology") for run_id in (first, second)] == ["inline", "local"]
    trial.sql("ROLLBACK")
