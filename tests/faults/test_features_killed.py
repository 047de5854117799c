"""Runs with features of frozen layers survive a killed process; a full disk leaves no table of features."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np
import psycopg2
import pytest

import nets
from disturbing import begun, run_begun, session_at_work
from scratch import Server, kill, server, shell
from trial import SGD, Trial, blobs, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]

FEATURES, UNITS, EPOCHS, WIDTH = 6, 1500, 30, 100
NET = nets.sequential(
    [FEATURES * WIDTH],
    nets.layer("Dense", units=UNITS, activation="relu", trainable=False, name="low"),
    nets.layer("Dense", units=UNITS, activation="tanh", trainable=False, name="high"),
    nets.layer("Dense", units=3, activation="softmax"),
)
SIZE = FEATURES * WIDTH * UNITS + UNITS + UNITS * UNITS + UNITS + UNITS * 3 + 3
MATERIALIZE = "SELECT cerebro.materialize_features('packed', 'arch', 1, 'high', 'features')"
REFRESH = "SELECT cerebro.refresh_features('features')"


@pytest.fixture(scope="module")
def scratch() -> Iterator[Server]:
    with server() as made:
        with closing(made.connect()) as connection:
            connection.notices = []
            trial = Trial(connection)
            for name, count in (("blobs", 4000), ("more", 4000)):
                x, y = blobs(count, features=FEATURES)
                trial.table(name, "x real[], y integer", rows_of(np.tile(x, WIDTH), y))
            trial.pack("blobs", "packed", buffer_size=50)
            weights = np.random.default_rng(1).normal(size=SIZE, scale=0.02).astype("<f4")
            trial.model(NET, weights=weights.tobytes())
            trial.select("configs", [1], [SGD], ["batch_size=10", "batch_size=16"])
            trial.fit("packed", "undisturbed", "configs", EPOCHS, options={"materialize": "off"})
        yield made


@pytest.fixture
def trial(scratch: Server) -> Iterator[Trial]:
    with closing(scratch.connect()) as connection:
        connection.notices = []
        yield Trial(connection)


@pytest.mark.parametrize("visits", [0, 3])
def test_a_run_goes_on_to_the_same_bits(scratch: Server, visits: int) -> None:
    """The session is killed in the first visit, which makes the features, or in one that reads them."""
    out = f"killed_{visits}"
    with closing(scratch.connect()) as caller, closing(scratch.connect()) as person:
        looking = Trial(person)
        thread, failed = run_begun(
            looking, caller, lambda trial: trial.fit("packed", out, "configs", EPOCHS), visits
        )
        kill(session_at_work(looking, thread), signal.SIGKILL)
        thread.join()
        assert failed
    scratch.ensure_up()
    with closing(scratch.connect()) as person:
        person.notices = []
        trial = Trial(person)
        run = trial.value("SELECT max(run_id) FROM cerebro.runs")
        trial.sql("SELECT cerebro.resume(%s)", run)
        assert trial.value("SELECT limits::json -> 'cuts' FROM cerebro._run WHERE run_id = %s", run)
        assert trial.weights(out) == trial.weights("undisturbed")


def killed(scratch: Server, statement: str) -> None:
    """Begin a statement, and kill its session once it has written some megabytes of write-ahead log."""
    with closing(scratch.connect()) as caller, closing(scratch.connect()) as person:
        looking = Trial(person)
        pid = caller.info.backend_pid
        thread, failed = begun(caller, lambda trial: trial.sql(statement))
        # The rows that it has written so far are in a file that no other session can see yet.
        written = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
        before = looking.value(written)
        while looking.value(written) < before + 4 * 2**20:
            assert thread.is_alive()
        kill(pid, signal.SIGKILL)
        thread.join()
        assert failed
        # The server ends all other sessions, too, before it comes up again.
        with pytest.raises(psycopg2.Error):
            while True:
                looking.sql("SELECT pg_sleep(0.05)")
    scratch.ensure_up()


def test_a_table_of_features_that_was_killed_is_not_there_and_is_made_again(scratch: Server) -> None:
    killed(scratch, MATERIALIZE)
    with closing(scratch.connect()) as person:
        person.notices = []
        trial = Trial(person)
        assert trial.value("SELECT to_regclass('features')") is None
        assert trial.value("SELECT to_regclass('features_summary')") is None
        assert trial.value(MATERIALIZE) == 4000
        trial.call("append_rows", "packed", "more")
    killed(scratch, REFRESH)
    with closing(scratch.connect()) as person:
        person.notices = []
        trial = Trial(person)
        rows = "SELECT sum(features_shape[1]) FROM features"
        assert trial.value(rows) == 4000
        assert trial.value(REFRESH) == 4000
        assert trial.value(rows) == 8000


def test_a_full_disk_leaves_no_table_of_features(scratch: Server, trial: Trial) -> None:
    if scratch.disk is None:
        pytest.skip("no file system can be mounted here")
    trial.sql("DROP TABLE IF EXISTS features, features_summary")
    with small_space(scratch, megabytes=6):
        trial.sql("SET default_tablespace = small")
        with pytest.raises(psycopg2.errors.DiskFull):
            trial.sql(MATERIALIZE)
        assert trial.value("SELECT to_regclass('features')") is None
        trial.sql("RESET default_tablespace")
    assert trial.value(MATERIALIZE) >= 4000


@contextmanager
def small_space(scratch: Server, megabytes: int) -> Iterator[None]:
    """Make a tablespace on a small file system of its own, and drop both at the end."""
    place = scratch.folder / "small"
    place.mkdir()
    made = 'mount -t tmpfs -o "size=$2m" none "$1" && mkdir "$1/space" && chown -R "$(server_user):" "$1"'
    shell(made, place, megabytes)
    scratch.sql(f"CREATE TABLESPACE small LOCATION '{place}/space'")
    try:
        yield
    finally:
        # Files of tables that were dropped last may exist until the next checkpoint.
        scratch.sql("CHECKPOINT")
        scratch.sql("DROP TABLESPACE small")
        shell('umount "$1"', place)
