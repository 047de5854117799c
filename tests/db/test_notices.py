"""The notices that a call sends while it works, and the context of its errors."""

from __future__ import annotations

import re
import time
from contextlib import closing

import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.slow

FEATURES = 12


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(120, features=FEATURES)))
    trial.pack("blobs", "packed", buffer_size=25)
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM, SGD], ["batch_size=16,epochs=1", "batch_size=32,epochs=2"])


def test_notices_say_how_it_goes(trial: Trial) -> None:
    trial.notices()
    run_id = trial.fit("packed", "talking", "mst", 2)
    said = trial.notices()
    assert f"run {run_id}: 4 configs on 2 segments, 2 epochs, 16 visits" in said
    assert "epoch 1 of 2 done" in said
    (last,) = [line for line in said.splitlines() if "epoch 2 of 2 done" in line]
    (done,) = [line for line in said.splitlines() if "done in" in line]
    value = trial.value("SELECT max(training_metrics_final) FROM talking_info")
    assert f"best training accuracy {value:.4f} (mst_key" in done
    assert last.rpartition("; ")[2] == done.rpartition("; ")[2]


def test_a_session_that_has_to_start_is_told_of_at_once(trial: Trial) -> None:
    with closing(psycopg2.connect(trial.connection.dsn)) as connection:
        connection.autocommit = True
        fresh = Trial(connection)
        began = time.monotonic()
        fresh.fit("packed", "fresh", "mst", 1)
        took = time.monotonic() - began
        first, *_, last = fresh.notices().splitlines()
        assert re.fullmatch(r"NOTICE:  starting 2 sessions with \w+", first)
        # The first number is the time on the caller's clock, which includes the start of sessions.
        found = re.search(r"done in ([\d.]+) s \(([\d.]+) s of them to start\)", last)
        assert found and float(found[2]) < float(found[1]) <= took + 0.5
        fresh.fit("packed", "fresh_2", "mst", 1)
        assert "starting" not in fresh.notices()


def test_many_epochs_print_few_lines(trial: Trial) -> None:
    trial.keep("mst_long", "mst", [2])
    trial.notices()
    trial.fit("packed", "long", "mst_long", 95)
    lines = trial.notices().splitlines()
    epochs = [int(found[1]) for line in lines if (found := re.search(r"epoch (\d+) of 95 done", line))]
    assert epochs == [10, 20, 30, 40, 50, 60, 70, 80, 90, 95]


def test_an_error_is_not_buried_under_the_names_of_its_arguments(trial: Trial) -> None:
    with pytest.raises(psycopg2.errors.UndefinedTable) as refused:
        trial.fit("nowhere", "models", "mst", 1)
    context = refused.value.diag.context
    assert context and max(map(len, context.splitlines())) < 80
