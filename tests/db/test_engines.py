"""Several engines in one run: each architecture trains with its own engine, or the planner chooses one."""

from __future__ import annotations

import importlib.util
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg2
import pytest

import nets
from fixtures import Connect
from trial import ADAM, Trial, blobs, rows_of

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("jax") is None,
        reason="the server's Python has no two engines to choose between",
    ),
    pytest.mark.fresh_caller,
]
FEATURES = 12
FIT = "batch_size=10,epochs=1"
CORES = len(os.sched_getaffinity(0))


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(120, features=FEATURES)))
    trial.pack("blobs", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.model(nets.mlp(FEATURES, 8))
    trial.select("both", [1, 2], [ADAM], [FIT])
    trial.select("first", [1], [ADAM], [FIT])
    trial.select("second", [2], [ADAM], [FIT])


def fit(trial: Trial, selection: str, out: str, epochs: int = 2, **options: Any) -> dict[int, str]:
    """Train the selection, and return the engine of each config by `mst_key`."""
    trial.call("madlib_fit_multiple_model", "packed", out, selection, epochs, options={"seed": 7, **options})
    rows = trial.sql("SELECT mst_key, backend FROM cerebro.leaderboard WHERE run_id = cerebro.last_run()")
    return dict(rows)


MIXED = {"1": "jax", "2": "tensorflow"}


def test_each_architecture_trains_on_its_own_engine(trial: Trial) -> None:
    assert fit(trial, "both", "mixed", backend=MIXED) == {1: "jax", 2: "tensorflow"}
    fit(trial, "both", "plain_jax", backend="jax")
    fit(trial, "both", "plain_tf", backend="tensorflow")
    mixed = trial.weights("mixed")
    assert mixed[1] == trial.weights("plain_jax")[1]
    assert mixed[2] == trial.weights("plain_tf")[2]
    assert trial.value("SELECT count(DISTINCT backend) FROM mixed_info") == 2
    assert trial.value("SELECT count(*) FROM cerebro.visits WHERE run_id = cerebro.last_run()") == 8


def test_a_run_stays_on_the_engines_of_the_run_that_it_repeats_or_continues(trial: Trial) -> None:
    fit(trial, "both", "kept", backend=MIXED)
    fit(trial, "both", "repeated", replay=trial.value("SELECT run_id FROM kept_summary"))
    assert trial.weights("repeated") == trial.weights("kept")
    trial.fit("packed", "kept", "both", 1, warm_start=True)
    assert dict(trial.sql("SELECT mst_key, backend FROM kept_info")) == {1: "jax", 2: "tensorflow"}


@pytest.mark.slow
def test_an_interrupted_run_of_two_engines_goes_on_with_both(trial: Trial, connect: Connect) -> None:
    fit(trial, "both", "whole", epochs=30, backend=MIXED)
    caller = Trial(connect())
    pid = caller.connection.info.backend_pid
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(fit, caller, "both", "broken", epochs=30, backend=MIXED)
        run = 1 + trial.value("SELECT max(run_id) FROM cerebro._run")
        while trial.value("SELECT count(*) FROM cerebro.visits WHERE run_id = %s", run) < 10:
            assert not begun.done()
            time.sleep(0.02)
        trial.sql("SELECT pg_cancel_backend(%s)", pid)
        with pytest.raises(psycopg2.errors.QueryCanceled):
            begun.result()
    trial.sql("SELECT cerebro.resume(%s)", run)
    assert trial.weights("broken") == trial.weights("whole")
    assert trial.value("SELECT count(DISTINCT backend) FROM broken_info") == 2


def test_a_search_has_the_engines_of_its_architectures(trial: Trial) -> None:
    trial.call(
        "madlib_automl", "packed", "searched", "arch", "searched_best", [1, 2],
        "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.1, 0.05, 0.02]}]}",
        "{'batch_size': [10], 'epochs': [1]}", "hyperband", "R=2, eta=2, skip_last=0", 3,
        options={"seed": 7, "backend": MIXED},
    )  # fmt: skip
    rows = trial.sql("SELECT DISTINCT model_id, backend FROM searched_info ORDER BY 1")
    assert set(rows) <= {(1, "jax"), (2, "tensorflow")} and rows
    search = trial.value("SELECT search FROM cerebro._run WHERE run_id = cerebro.last_run()")
    assert json.loads(search)["backends"] == {"1": "jax", "2": "tensorflow"}


def test_the_planner_chooses_an_engine_and_says_so(trial: Trial) -> None:
    trial.notices()
    (chosen,) = set(fit(trial, "both", "chosen", backend="auto").values())
    assert f"chosen by the planner: backend {chosen}, threads " in trial.notices()
    fit(trial, "both", "named", backend=chosen)
    assert trial.weights("chosen") == trial.weights("named")


def test_what_was_measured_changes_no_choice(trial: Trial) -> None:
    """Measured rates that make one engine look slow do not change the planner's choice of engines."""
    fit(trial, "both", "seen_jax", backend="jax")
    fit(trial, "both", "seen_tf", backend="tensorflow")
    before = fit(trial, "both", "before", backend="auto")
    for slow in ("jax", "tensorflow"):
        trial.sql("UPDATE cerebro._rate SET batch_seconds = batch_seconds * 1000 WHERE backend = %s", slow)
        assert fit(trial, "both", f"after_{slow}", backend="auto") == before
    trial.sql("TRUNCATE cerebro._rate")


def test_a_replay_has_what_was_chosen_then(trial: Trial) -> None:
    fit(trial, "both", "one_choice", backend="auto", patience=5)
    run = trial.value("SELECT cerebro.last_run()")
    trial.sql("UPDATE cerebro._config SET backend = 'tensorflow' WHERE run_id = %s AND model_id = 2", run)
    trial.sql("UPDATE cerebro._config SET backend = 'jax' WHERE run_id = %s AND model_id = 1", run)
    again = fit(trial, "both", "again", backend="auto", patience=5, replay=run)
    assert again == {1: "jax", 2: "tensorflow"}


def test_a_plan_within_a_time_measures_as_often_as_that_allows(trial: Trial) -> None:
    fit(trial, "both", "often", epochs=4, plan={"within": "1 h"})
    assert trial.value("SELECT metrics_compute_frequency FROM often_summary") == 1
    fit(trial, "both", "fast", epochs=4, plan="fastest")
    assert trial.value("SELECT metrics_compute_frequency FROM fast_summary") == 4
    trial.call(
        "madlib_fit_multiple_model", "packed", "said", "both", 4, metrics_compute_frequency=2,
        options={"seed": 7, "plan": {"within": 3600}},
    )  # fmt: skip
    assert trial.value("SELECT metrics_compute_frequency FROM said_summary") == 2


@pytest.mark.parametrize(
    ("plan", "message", "hint"),
    [
        ({"within": "1 s"}, "no plan takes at most 1", "Train "),
        ({"memory_mb": 10}, "no plan needs at most 10 MB: the least is ", "memory"),
    ],
)
def test_a_plan_that_nothing_keeps_to_says_what_would(
    trial: Trial, plan: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(psycopg2.Error) as refused:
        fit(trial, "both", "never", epochs=10_000, plan=plan)
    assert refused.value.pgcode == "54000"
    assert message in str(refused.value)
    assert hint in (refused.value.diag.message_hint or "")
    assert trial.value("SELECT to_regclass('never')") is None


def test_an_administrator_switches_choosing_off(trial: Trial) -> None:
    trial.sql("INSERT INTO cerebro.settings VALUES ('choosing', 'off')")
    try:
        for option, value in (("backend", "auto"), ("threads", "auto"), ("plan", "fastest")):
            with pytest.raises(psycopg2.Error, match="switched that off") as refused:
                fit(trial, "first", "never", 1, **{option: value})
            assert refused.value.pgcode == "55000"
        trial.call("madlib_fit", "packed", "usual", "arch", 1, ADAM, FIT, 1, options={"seed": 7})
        share = max(1, CORES // 2)
        assert trial.value("SELECT threads FROM cerebro._run ORDER BY run_id DESC LIMIT 1") == share
    finally:
        trial.sql("DELETE FROM cerebro.settings WHERE name = 'choosing'")


def test_a_session_that_trains_alone_has_one_engine(trial: Trial) -> None:
    trial.sql("CREATE TEMP TABLE own AS SELECT * FROM packed")
    trial.sql("CREATE TEMP TABLE own_summary AS SELECT * FROM packed_summary")
    with pytest.raises(psycopg2.Error, match="one session cannot train with jax and tensorflow"):
        trial.call(
            "madlib_fit_multiple_model", "own", "alone", "both", 1, options={"seed": 7, "backend": MIXED}
        )
    trial.sql("DROP TABLE own, own_summary")


@pytest.mark.parametrize(
    "given", ["Jax", {"one": "jax"}, {"1": "pytorch"}, {"-1": "jax"}, 3, [], {"1": None}, {"1": {}}]
)
def test_what_no_engine_is_called_is_refused(trial: Trial, given: Any) -> None:
    with pytest.raises(psycopg2.Error, match="option backend"):
        fit(trial, "both", "never", backend=given)


def test_a_plan_shows_what_would_be_chosen(trial: Trial) -> None:
    asked = "SELECT cerebro.explain_fit('packed', 'both', 2, options => %s, format => 'json')"
    plan = json.loads(trial.value(asked, json.dumps({"seed": 7, "backend": MIXED})))[0]["Plan"]
    assert plan["Settings"]["backend"] == "jax for model 1, tensorflow for model 2"
    plan = json.loads(trial.value(asked, json.dumps({"seed": 7, "plan": {"within": "1 h"}})))[0]["Plan"]
    assert plan["Settings"]["metrics_compute_frequency"] == 1
    chosen = plan["Settings"]["backend"]
    assert set(fit(trial, "both", "as_planned", plan={"within": "1 h"}).values()) == {chosen}
