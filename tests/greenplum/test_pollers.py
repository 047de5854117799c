"""Readers and dumps cost no row of a run, even on servers that lose rows written in subtransactions."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import closing

import psycopg2
import pytest

import nets
from fixtures import execute
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.greenplum
FEATURES, RUNS, POLLERS = 12, 3, 2
POLL = (
    "SELECT r.run_id, count(c.mst_key) FROM cerebro._run AS r LEFT JOIN cerebro._config AS c USING (run_id)"
    " LEFT JOIN cerebro._visit AS v USING (run_id, mst_key) GROUP BY 1 ORDER BY 1"
)
# The ports of the segments' servers; each is asked which rows of a replicated table it has.
PORTS = "SELECT port FROM gp_segment_configuration WHERE content >= 0 AND role = 'p' ORDER BY content"


def _poll(database: str, done: threading.Event) -> None:
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        while not done.is_set():
            execute(connection, POLL)
            execute(connection, "SELECT count(*) FROM cerebro.runs JOIN cerebro.progress USING (run_id)")


def _dump(database: str, done: threading.Event) -> None:
    while not done.is_set():
        subprocess.run(["pg_dump", "-n", "cerebro", "-f", os.devnull, database], check=True)


def test_pollers_and_dumps_cost_no_row_of_a_run(trial: Trial, database: str) -> None:
    x, y = blobs(300, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed", options={"segments": 3})
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM, SGD], ["batch_size=16,epochs=1", "batch_size=32,epochs=1"])
    done = threading.Event()
    watching = [threading.Thread(target=_poll, args=(database, done)) for _ in range(POLLERS)]
    watching.append(threading.Thread(target=_dump, args=(database, done)))
    for thread in watching:
        thread.start()
    try:
        numbers = [trial.fit("packed", f"models_{n}", "mst", 1) for n in range(RUNS)]
    finally:
        done.set()
        for thread in watching:
            thread.join()
    for (port,) in trial.sql(PORTS):
        with closing(psycopg2.connect(dbname=database, port=port, options="-c gp_role=utility")) as segment:
            for table, rows in (("_run", 1), ("_config", 4), ("_run_event", 2)):
                found = execute(segment, f"SELECT count(*), sum(run_id) FROM cerebro.{table}")
                assert found == [(rows * RUNS, rows * sum(numbers))], (port, table)
