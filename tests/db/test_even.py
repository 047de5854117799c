"""Option `order`: with `even`, no config is more than an epoch ahead, and all are ranked at one epoch."""

from __future__ import annotations

import time
from typing import Any

import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES = 12
EPOCHS = 6


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(240, features=FEATURES)))
    trial.pack("blobs", "packed")
    trial.model(nets.mlp(FEATURES))
    # Visits with the first fit parameters take far longer than visits with the second.
    trial.select("configs", [1], [ADAM, SGD], ["batch_size=4,epochs=6", "batch_size=60,epochs=1"])


def fit(trial: Trial, out: str, **options: Any) -> int:
    return trial.fit(
        "packed", out, "configs", EPOCHS, metrics_compute_frequency=1, options={"backend": "jax", **options}
    )


def test_no_config_is_more_than_an_epoch_ahead(trial: Trial) -> None:
    run_id = fit(trial, "even", order="even")
    done: dict[int, int] = {}
    for key, _ in trial.sql(
        "SELECT mst_key, step FROM cerebro.visits WHERE run_id = %s ORDER BY ended_at", run_id
    ):
        done[key] = done.get(key, 0) + 1
        epochs = [done.get(k, 0) // 2 for k in (1, 2, 3, 4)]
        assert max(epochs) - min(epochs) <= 1


def test_the_order_changes_no_bit(trial: Trial) -> None:
    fit(trial, "usual")
    assert trial.weights("usual") == trial.weights("even")


def test_when_all_is_over_the_leaderboard_is_as_ever(trial: Trial) -> None:
    board = (
        "SELECT mst_key, rank, value, epoch FROM cerebro.leaderboard"
        " WHERE run_id = (SELECT run_id FROM {}_summary) ORDER BY 1"
    )
    assert trial.sql(board.format("even")) == trial.sql(board.format("usual"))


@pytest.mark.slow
def test_in_mid_run_all_are_ranked_at_one_epoch(trial: Trial) -> None:
    trial.call(
        "madlib_fit_multiple_model", "packed", "watched", "configs", 60, metrics_compute_frequency=1,
        options={"backend": "jax", "seed": 7, "threads": 1, "order": "even", "background": True},
    )  # fmt: skip
    run_id = trial.value("SELECT cerebro.last_run()")
    seen: set[int] = set()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        rows = trial.sql(
            "SELECT l.epoch, l.newest_epoch, l.newest_value IS NOT NULL, r.status"
            " FROM cerebro.leaderboard AS l JOIN cerebro.runs AS r USING (run_id) WHERE run_id = %s",
            run_id,
        )
        if rows[0][3] != "running":
            break
        epochs = {epoch for epoch, *_ in rows if epoch is not None}
        assert len(epochs) <= 1
        assert all(newest >= epoch and there for epoch, newest, there, _ in rows if epoch is not None)
        seen |= epochs
        if len(seen) > 3:
            trial.sql("SELECT cerebro.stop(%s)", run_id)
            break
        time.sleep(0.05)
    assert len(seen) > 1
    assert trial.value("SELECT cerebro.wait(%s)", run_id) == "finished"


def test_a_search_has_an_order_of_its_own(trial: Trial) -> None:
    with pytest.raises(psycopg2.Error, match="unknown option order"):
        trial.sql(
            "SELECT cerebro.madlib_automl('packed', 'o', 'arch', 's', ARRAY[1], '{}', '{}',"
            ' options => \'{"order": "even"}\')'
        )
