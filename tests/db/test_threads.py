"""The threads of a run: all cores if it has one config, or a share for each segment if it has several."""

from __future__ import annotations

import json
import os
from typing import Any

import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

FEATURES = 12
CORES = len(os.sched_getaffinity(0))


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(120, features=FEATURES)))
    trial.pack("blobs", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.select("two", [1], [ADAM, SGD], ["batch_size=10,epochs=1"])
    trial.keep("one", "two", [1])


def threads(trial: Trial) -> int:
    """Return the number of threads of the newest run."""
    return trial.value("SELECT threads FROM cerebro._run ORDER BY run_id DESC LIMIT 1")


def fit(trial: Trial, selection: str, out: str, **options: Any) -> int:
    trial.call(
        "madlib_fit_multiple_model", "packed", out, selection, 2,
        options={"seed": 7, "backend": "jax", **options},
    )  # fmt: skip
    return threads(trial)


def fit_one(trial: Trial, out: str, **options: Any) -> int:
    trial.call(
        "madlib_fit", "packed", out, "arch", 1, ADAM, "batch_size=10,epochs=1", 2,
        options={"seed": 7, "backend": "jax", **options},
    )  # fmt: skip
    return threads(trial)


def test_a_run_of_one_config_by_its_kind_has_all_cores(trial: Trial) -> None:
    assert fit_one(trial, "single") == CORES
    assert fit_one(trial, "single_1", threads=1) == 1


def test_other_runs_share_the_cores_among_their_segments(trial: Trial) -> None:
    share = max(1, CORES // 2)
    assert fit(trial, "two", "shared") == share
    # A run of this kind has as many threads for one config as for two, so its bits are the same.
    assert fit(trial, "one", "alone") == share
    assert trial.weights("alone")[1] == trial.weights("shared")[1]


def test_auto_gives_few_configs_more(trial: Trial) -> None:
    assert fit(trial, "one", "auto_one", threads="auto") == CORES
    assert fit(trial, "two", "auto_two", threads="auto") == max(1, CORES // 2)


def test_threads_are_the_only_difference_of_one_and_many(trial: Trial) -> None:
    """madlib_fit and a run of one config give the same weights if both use one thread."""
    fit_one(trial, "same_single", threads=1)
    fit(trial, "one", "same_many", threads=1)
    assert bytes(trial.value("SELECT model_weights FROM same_single")) == trial.weights("same_many")[1]


def test_sessions_of_either_kind_stay(trial: Trial) -> None:
    """Sessions stay open if calls alternate between two numbers of threads; no engine starts again."""
    pids = (
        "SELECT pid FROM pg_stat_activity"
        " WHERE application_name LIKE 'cerebro%' AND datname = current_database()"
    )
    before = set()
    for number, width in enumerate((1, CORES, 1, CORES)):
        fit(trial, "two", f"turn_{number}", threads=width)
        if number == 1:
            before = set(trial.sql(pids))
    assert set(trial.sql(pids)) == before


def test_what_is_chosen_is_written_with_the_run(trial: Trial) -> None:
    fit(trial, "one", "written", threads="auto")
    plan = trial.value("SELECT cerebro.explain_run(cerebro.last_run(), 'json')")
    assert json.loads(plan)[0]["Plan"]["Settings"]["threads"] == CORES


def test_the_plan_says_so(trial: Trial) -> None:
    options = json.dumps({"threads": "auto"})
    text = trial.value(
        "SELECT cerebro.explain_fit('packed', 'one', 2, options => %s, format => 'json')", options
    )
    assert json.loads(text)[0]["Plan"]["Settings"]["threads"] == CORES


@pytest.mark.parametrize("given", ["many", 0, 1.5, True])
def test_another_word_is_refused(trial: Trial, given: object) -> None:
    with pytest.raises(psycopg2.Error, match="option threads is") as caught:
        fit(trial, "two", "never", threads=given)
    assert caught.value.diag.message_detail
