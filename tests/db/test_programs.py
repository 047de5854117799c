"""Programs that JAX has compiled are kept in a folder: a later session loads them, with the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

import nets
from trial import ADAM, Trial, blobs, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

FEATURES = 12
FILES = "SELECT count(*), max(modification) FROM pg_ls_dir(%s) AS d, pg_stat_file(%s || '/' || d)"


@pytest.fixture(scope="module")
def folder(trial: Trial) -> Iterator[str]:
    """Make the tables for a fit, and set the folder in which sessions keep compiled programs."""
    x, y = blobs(60, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed", buffer_size=25)
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM], ["batch_size=16,epochs=1"])
    name = trial.value("SELECT current_setting('data_directory') || '/programs_' || current_database()")
    trial.sql("INSERT INTO cerebro.settings VALUES ('cache_folder', %s)", name)
    yield name
    trial.sql("DELETE FROM cerebro.settings WHERE name = 'cache_folder'")
    trial.sql(f"COPY (SELECT 1) TO PROGRAM 'rm -rf {name}'")


def fit_anew(database: str, out: str, packed: str = "packed", selection: str = "mst") -> Trial:
    """Fit in a new session, which has no compiled programs in memory, and close the session."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        connection.notices = []
        trial = Trial(connection)
        trial.fit(packed, out, selection, 2, options={"backend": "jax"})
        return trial


def test_the_next_session_compiles_nothing(trial: Trial, database: str, folder: str) -> None:
    fit_anew(database, "first")
    (kind,) = [name for (name,) in trial.sql("SELECT pg_ls_dir(%s)", folder)]
    compiled = trial.sql(FILES, *[f"{folder}/{kind}"] * 2)
    fit_anew(database, "second")
    assert trial.weights("first") == trial.weights("second")
    assert trial.sql(FILES, *[f"{folder}/{kind}"] * 2)[0][0] == compiled[0][0]
    found = "SELECT status, found FROM cerebro.diagnose() WHERE item = 'compiled programs'"
    ((status, text),) = trial.sql(found)
    assert status == "ok" and text.endswith(f" MB in programs_{database}")


def test_a_table_of_a_few_more_rows_trains_with_the_same_programs(
    trial: Trial, database: str, folder: str
) -> None:
    x, y = blobs(208, features=FEATURES)
    trial.select("by_four", [1], [ADAM], ["batch_size=4,epochs=1"])
    found = []
    for rows in (200, 208):
        trial.table(f"rows_{rows}", "x real[], y integer", rows_of(x[:rows], y[:rows]))
        trial.pack(f"rows_{rows}", f"packed_{rows}")
        fit_anew(database, f"of_{rows}", packed=f"packed_{rows}", selection="by_four")
        (kind,) = [name for (name,) in trial.sql("SELECT pg_ls_dir(%s)", folder)]
        found.append({name for (name,) in trial.sql("SELECT pg_ls_dir(%s)", f"{folder}/{kind}")})
    (new,) = found[1] - found[0]
    # A batch of all rows of a segment, to measure.
    assert "_test" in new


def test_a_folder_for_others_is_left_alone(trial: Trial, database: str, folder: str, greenplum: bool) -> None:
    fit_anew(database, "before")
    trial.sql(f"COPY (SELECT 1) TO PROGRAM 'chmod g+w {folder}'")
    reason = "compiled programs are not kept for other sessions: others than its owner may write to "
    # The data directory of a segment is another one.
    assert reason + (folder if greenplum else f"programs_{database}") in fit_anew(database, "third").notices()
    assert trial.weights("before") == trial.weights("third")
    ((status, text, advice),) = trial.sql(
        "SELECT status, found, advice FROM cerebro.diagnose() WHERE item = 'compiled programs'"
    )
    assert (status, text) == ("note", f"{reason.partition('compiled programs are ')[2]}programs_{database}")
    assert "Make it a folder that the server's user alone may write to" in advice


def test_an_empty_name_turns_it_off(trial: Trial, folder: str) -> None:
    trial.sql("UPDATE cerebro.settings SET value = '' WHERE name = 'cache_folder'")
    found = trial.value("SELECT found FROM cerebro.diagnose() WHERE item = 'compiled programs'")
    assert found == "not kept for other sessions: the setting cache_folder is empty"
