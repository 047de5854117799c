"""Runs of groups, killed and resumed: committed visits stay, and the bits are the same."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

import nets
from disturbing import run_begun, session_at_work
from scratch import Server, kill, server
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]

FEATURES, EPOCHS = 6, 120
KEPT = "SELECT shop, mst_key, model_weights FROM {} ORDER BY 1, 2"


@pytest.fixture(scope="module")
def scratch() -> Iterator[Server]:
    with server() as made:
        with closing(made.connect()) as connection:
            connection.notices = []
            trial = Trial(connection)
            trial.table("blobs", "x real[], y integer", rows_of(*blobs(400, features=FEATURES)))
            trial.sql(
                "CREATE TABLE sales AS SELECT x, y, (number % 7)::text AS shop"
                " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
            )
            trial.pack("sales", "packed", options={"group_by": "shop"})
            trial.model(nets.mlp(FEATURES))
            trial.select("configs", [1], [ADAM, SGD], ["batch_size=10"])
            fit(trial, "undisturbed", "off")
        yield made


def fit(trial: Trial, out: str, fuse: str) -> None:
    trial.fit("packed", out, "configs", EPOCHS, options={"fuse": fuse, "checkpoint_every": 3})


@pytest.mark.parametrize("struck", ["a session", "every process", "the first process"])
def test_what_is_killed_goes_on_to_the_same_bits(scratch: Server, struck: str) -> None:
    out = f"killed_{struck.split()[0]}"
    with closing(scratch.connect()) as caller, closing(scratch.connect()) as person:
        looking = Trial(person)
        thread, failed = run_begun(looking, caller, lambda trial: fit(trial, out, "off"), visits=60)
        if struck == "every process":
            scratch.kill_all()
        elif struck == "the first process":
            scratch.kill_postmaster()
        else:
            kill(session_at_work(looking, thread), signal.SIGKILL)
        thread.join()
        assert failed
    scratch.ensure_up()
    with closing(scratch.connect()) as person:
        person.notices = []
        trial = Trial(person)
        run_id = trial.value("SELECT max(run_id) FROM cerebro.runs")
        assert trial.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run_id) == "interrupted"
        trial.sql("SELECT cerebro.resume(%s)", run_id)
        assert trial.sql(KEPT.format(out)) == trial.sql(KEPT.format("undisturbed"))
