"""Option `hybrid`: from a given epoch on, all segments train a config at once; its states are averaged."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psycopg2
import pytest

import nets
from fixtures import Connect
from trial import ADAM, Trial, blobs, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

FEATURES, ROWS = 12, 121
SGD = "optimizer='SGD(learning_rate=0.1)',loss='categorical_crossentropy',metrics=['accuracy']"
# A partition is one batch: the order of its rows makes no difference.
WHOLE, SMALL = "batch_size=100,epochs=1", "batch_size=10,epochs=1"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(ROWS, features=FEATURES)))
    trial.pack("blobs", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.model(nets.mlp_with_dropout())
    trial.select("whole", [1], [SGD], [WHOLE])
    trial.select("small", [1], [ADAM], [SMALL])
    trial.select("several", [1], [ADAM, SGD], [SMALL])
    trial.sql("INSERT INTO cerebro.settings VALUES ('threads', '1'), ('backend', 'jax')")


def fit(trial: Trial, selection: str, out: str, epochs: int, begins: int | None, **options: Any) -> int:
    hybrid = {} if begins is None else {"hybrid": {"average_from_epoch": begins}}
    return trial.fit("packed", out, selection, epochs, options={**hybrid, **options})


def floats(trial: Trial, out: str) -> np.ndarray:
    return np.frombuffer(trial.weights(out)[1], "<f4")


def test_an_epoch_comes_to_the_mean_of_what_each_segment_makes_of_it(trial: Trial) -> None:
    fit(trial, "whole", "averaged", 1, 1)
    made: list[np.ndarray] = []
    counts: list[int] = []
    for segment in range(2):
        own = [(x, y) for s, x, y in trial.buffers("packed") if s == segment]
        x, y = np.concatenate([x for x, _ in own]), np.concatenate([y for _, y in own])
        name = f"rows_{segment}"
        trial.table(name, "x real[], y integer", rows_of(x, y.reshape(len(y), -1).argmax(axis=1)))
        trial.pack(name, f"solo_{segment}", options={"segments": 1})
        trial.fit(f"solo_{segment}", f"alone_{segment}", "whole", 1)
        made.append(floats(trial, f"alone_{segment}"))
        counts.append(len(y))
    assert sorted(counts) == [60, 61]
    mean = sum(n * weights for n, weights in zip(counts, made, strict=True)) / sum(counts)
    assert not np.allclose(made[0], made[1], atol=1e-4)
    np.testing.assert_allclose(floats(trial, "averaged"), mean, atol=1e-6)


def test_the_same_call_gives_the_same_bits_and_other_ones_than_hopping(trial: Trial) -> None:
    run = fit(trial, "small", "first", 6, 4)
    fit(trial, "small", "second", 6, 4)
    fit(trial, "small", "hopped", 6, None)
    assert trial.weights("first") == trial.weights("second") != trial.weights("hopped")
    steps = trial.sql("SELECT step, segment FROM cerebro.visits WHERE run_id = %s ORDER BY 1, 2", run)
    assert [step for step, _ in steps] == list(range(1, 13))
    assert {segment for step, segment in steps if step in (7, 8)} == {0, 1}
    done = "SELECT status, visits_done, visits_total FROM cerebro.runs WHERE run_id = %s"
    assert trial.sql(done, run) == [("finished", 12, 12)]
    shown = "SELECT status, epoch, visits_done, visits_total FROM cerebro.progress WHERE run_id = %s"
    assert trial.sql(shown, run) == [("finished", 6, 12, 12)]


def test_the_visits_of_an_averaged_epoch_begin_with_the_same_state_at_once(trial: Trial) -> None:
    run = fit(trial, "small", "at_once", 20, 1)
    overlapping = trial.value(
        "SELECT count(*) FROM cerebro.visits AS a JOIN cerebro.visits AS b USING (run_id, epoch)"
        " WHERE run_id = %s AND a.segment = 0 AND b.segment = 1"
        " AND a.started_at < b.ended_at AND b.started_at < a.ended_at",
        run,
    )
    assert overlapping > 10


DAMAGE = {
    "nothing": "FALSE",
    "the newest": "step = (SELECT max(s.step) FROM cerebro._state AS s WHERE s.run_id = x.run_id)",
    "what waits to be averaged": "step < 0",
}


@pytest.mark.parametrize(
    "damaged",
    [
        "nothing",
        "the newest",
        "what waits to be averaged",
    ],
)
def test_a_run_that_was_killed_goes_on_to_the_same_bits(trial: Trial, connect: Connect, damaged: str) -> None:
    trial.sql("DROP TABLE IF EXISTS broken, broken_info, broken_summary")
    trial.sql("DROP TABLE IF EXISTS undisturbed, undisturbed_info, undisturbed_summary")
    fit(trial, "small", "undisturbed", 60, 2)
    caller = Trial(connect())
    pid = caller.connection.info.backend_pid
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(fit, caller, "small", "broken", 60, 2)
        run = 1 + trial.value("SELECT max(run_id) FROM cerebro._run")
        while trial.value("SELECT count(*) FROM cerebro.visits WHERE run_id = %s", run) < 13:
            assert not begun.done()
            time.sleep(0.02)
        trial.sql("SELECT pg_terminate_backend(%s)", pid)
        with pytest.raises(psycopg2.Error):
            begun.result()
    while trial.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run) != "interrupted":
        time.sleep(0.1)
    trial.sql(
        "UPDATE cerebro._state AS x SET data = substr(data, 1, 90) WHERE run_id = %s AND " + DAMAGE[damaged],
        run,
    )
    trial.notices()
    trial.sql("SET client_min_messages = warning")
    trial.sql("SELECT cerebro.resume(%s)", run)
    trial.sql("RESET client_min_messages")
    assert ("goes on from step" in trial.notices()) == (damaged == "the newest")
    assert trial.weights("broken") == trial.weights("undisturbed")


def test_early_stopping_steering_and_evaluations_see_whole_epochs(trial: Trial) -> None:
    run = fit(trial, "small", "patient", 30, 2, patience=1, restore_best=True)
    epochs = trial.sql("SELECT DISTINCT epoch FROM cerebro.metrics WHERE run_id = %s ORDER BY 1", run)
    assert [epoch for (epoch,) in epochs] == list(range(1, len(epochs) + 1))
    assert trial.value("SELECT count(*) FROM patient") == 1


def test_a_plan_knows_that_epochs_are_averaged(trial: Trial) -> None:
    asked = (
        "SELECT cerebro.explain_fit('packed', 'small', 10, options => %s, format => 'json')::jsonb"
        " -> 0 -> 'Plan'"
    )
    plain, averaged = (
        trial.value(asked, options) for options in ("{}", '{"hybrid": {"average_from_epoch": 1}}')
    )
    assert averaged["Settings"]["average_from_epoch"] == 1
    assert averaged["Visits"] == plain["Visits"] == 20
    assert averaged["Total Time"] < plain["Total Time"]


@pytest.mark.parametrize(
    ("selection", "hybrid", "message"),
    [
        ("several", {"average_from_epoch": 1}, "there are 2 configs and 2 segments"),
        ("small", {"average_from_epoch": 9}, "average_from_epoch is 9, and num_iterations is 3"),
        ("small", {"average_from_epoch": 0}, "average_from_epoch is 0"),
        ("small", {"from": 1}, "option hybrid is"),
        ("small", 8, "option hybrid is 8"),
    ],
)
def test_what_cannot_be_averaged_is_refused(
    trial: Trial, selection: str, hybrid: object, message: str
) -> None:
    with pytest.raises(psycopg2.Error, match=message):
        trial.fit("packed", "never", selection, 3, options={"hybrid": hybrid})
    assert trial.value("SELECT to_regclass('never')") is None


def test_the_run_says_what_it_is(trial: Trial) -> None:
    trial.notices()
    fit(trial, "small", "called", 3, 2)
    assert (
        "from epoch 2 on, all segments train a config at once and their states are averaged"
        in trial.notices()
    )
