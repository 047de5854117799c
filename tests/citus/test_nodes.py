"""Citus: a run goes on, or is resumed to the same bits, if a worker or a session on it is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2
import pytest

import nets
from fixtures import CITUS_WORKERS, execute
from segments import answered
from trial import ADAM, Trial, blobs, rows_of

pytestmark = pytest.mark.citus
FEATURES, SEGMENTS, EPOCHS = 12, 3, 12
TOOL = Path(__file__).resolve().parents[2] / "tools" / "citus"
WAIT_SECONDS = 60.0
# After a crash, the first statement that reaches all workers fails on connections that have ended.
ALL_WORKERS = "SELECT count(*) FROM cerebro._visit"


@pytest.fixture(scope="module")
def weights(trial: Trial) -> dict[int, bytes]:
    """Pack rows for all workers, train undisturbed, and return the weights that later runs must reach."""
    x, y = blobs(600, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed", buffer_size=25, options={"segments": SEGMENTS})
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM], ["batch_size=4,epochs=1", "batch_size=5,epochs=1"])
    trial.fit("packed", "undisturbed", "mst", EPOCHS)
    return trial.weights("undisturbed")


def fit(trial: Trial, out: str) -> int:
    return trial.fit("packed", out, "mst", EPOCHS)


@contextmanager
def disturbed(trial: Trial, out: str) -> Iterator[Future[int]]:
    """Begin a run in another thread, and yield its future once each segment has made a visit."""
    answered(trial, ALL_WORKERS)
    before = trial.value("SELECT max(run_id) FROM cerebro._run")
    with (
        ThreadPoolExecutor(1) as pool,
        closing(psycopg2.connect(trial.connection.dsn)) as watcher,
    ):
        watcher.autocommit = True
        run = pool.submit(fit, trial, out)
        visited = "SELECT count(DISTINCT segment) FROM cerebro._visit WHERE run_id > %s"
        until = time.monotonic() + WAIT_SECONDS
        while execute(watcher, visited, before)[0][0] < SEGMENTS:
            assert time.monotonic() < until and not run.done(), "no visits were made"
            time.sleep(0.02)
        yield run


def find_session(worker: int, database: str) -> int:
    """Return the process number of a segment session on a worker."""
    with closing(psycopg2.connect(dbname=database, port=CITUS_WORKERS[worker])) as connection:
        rows = execute(
            connection,
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'cerebro%' ORDER BY application_name DESC",
        )
    return rows[0][0]


def end_node(number: int) -> None:
    subprocess.run([TOOL, "kill", str(number)], check=True)


def start_node(number: int) -> None:
    subprocess.run([TOOL, "start", str(number)], check=True)


def test_a_killed_session_takes_no_bits_along(trial: Trial, weights: dict[int, bytes]) -> None:
    """The worker ends all its sessions and restarts, as a server does when one of its processes crashes."""
    with disturbed(trial, "replaced") as run:
        os.kill(find_session(1, trial.connection.info.dbname), signal.SIGKILL)
        run.result(WAIT_SECONDS)
    assert trial.weights("replaced") == weights


def test_a_run_without_a_worker_is_resumed(trial: Trial, weights: dict[int, bytes]) -> None:
    trial.sql("INSERT INTO cerebro.settings VALUES ('retry_seconds', '2')")
    with disturbed(trial, "resumed") as run:
        end_node(2)
        try:
            with pytest.raises(psycopg2.Error) as caught:
                run.result(WAIT_SECONDS)
        finally:
            start_node(2)
            trial.sql("DELETE FROM cerebro.settings WHERE name = 'retry_seconds'")
    assert caught.value.pgcode == "58M01", caught.value
    # It depends on which session is the first to be opened again.
    assert re.search("a worker of the cluster refuses|not all nodes of the cluster answer", str(caught.value))
    answered(trial, ALL_WORKERS)
    run_id = trial.value("SELECT max(run_id) FROM cerebro._run")
    assert trial.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run_id) == "interrupted"
    trial.call("resume", run_id)
    assert trial.weights("resumed") == weights


def test_a_shard_that_moves_takes_no_bits_along(trial: Trial, weights: dict[int, bytes]) -> None:
    """A shard moves during a run or between runs; new sessions of the run open where the shard is now."""
    move = """SELECT citus_move_shard_placement(
            s.shardid, s.nodename, s.nodeport, n.nodename, n.nodeport, 'block_writes')
        FROM citus_shards AS s JOIN pg_dist_node AS n ON n.nodeport = %s
        WHERE s.shardid = get_shard_id_for_distribution_column('packed',
            (SELECT __dist_keys__[2] FROM packed_summary))"""
    with disturbed(trial, "moved_during") as run, closing(psycopg2.connect(trial.connection.dsn)) as mover:
        mover.autocommit = True
        execute(mover, move, int(CITUS_WORKERS[0]))
        run.result(WAIT_SECONDS)
    assert trial.weights("moved_during") == weights
    fit(trial, "moved_before")
    assert trial.weights("moved_before") == weights
