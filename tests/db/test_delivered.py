"""Ranks, notices and views report the quality of the state that the run stores as a config's result."""

from __future__ import annotations

import re
from typing import Any

import psycopg2
import pytest

import nets
from predicting import random_weights
from trial import SGD, Trial, blobs, rows_of

FEATURES = 12
# The loss of each config swings so much that the last epoch is hardly the best.
RESTLESS = [
    f"loss='categorical_crossentropy',optimizer='SGD(lr={rate},momentum=0.9)',metrics=['accuracy']"
    for rate in (0.5, 0.3, 0.2)
]
ALWAYS_RIGHT = "metrics=['TopKCategoricalAccuracy(k=5)']"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(120, features=FEATURES)))
    trial.pack("blobs", "packed")
    trial.table("held", "x real[], y integer", rows_of(*blobs(60, 1, FEATURES)))
    trial.pack_validation("held", "packed_val", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.select("restless", [1], RESTLESS, ["batch_size=10,epochs=1"])


def best_told(trial: Trial) -> tuple[float, int]:
    """Return the best value, and the `mst_key` of its config, from the last notice of a run."""
    found = re.findall(r"done in .*; best \w+ [\w ]+ (\S+) \(mst_key (\d+)\)", trial.notices())
    return float(found[-1][0]), int(found[-1][1])


def board(trial: Trial, run_id: int) -> list[tuple[Any, ...]]:
    return trial.sql(
        "SELECT mst_key, rank, value, loss, epoch, best_value, best_epoch FROM cerebro.leaderboard"
        " WHERE run_id = %s ORDER BY rank", run_id,
    )  # fmt: skip


@pytest.mark.parametrize("restored", [True, False])
@pytest.mark.parametrize("validated", [True, False])
def test_all_speak_of_the_state_that_is_delivered(trial: Trial, restored: bool, validated: bool) -> None:
    out, rows = f"out_{restored:d}_{validated:d}", "packed_val" if validated else "packed"
    trial.notices()
    options = {"restore_best": restored, "patience": 9}
    run_id = trial.fit(
        "packed", out, "restless", 10, validation_table=rows if validated else None, options=options
    )
    found = board(trial, run_id)
    assert best_told(trial) == (pytest.approx(found[0][2], abs=1e-4), found[0][0])
    assert [row[1] for row in found] == [1, 2, 3]
    assert [(-row[2], row[3]) for row in found] == sorted((-row[2], row[3]) for row in found)
    dataset = "validation" if validated else "training"
    if restored:
        assert any(row[4] < 10 for row in found)
    for mst_key, _, value, loss, epoch, best_value, best_epoch in found:
        info = trial.read_row(f"SELECT * FROM {out}_info WHERE mst_key = %s", mst_key)
        assert (info[f"{dataset}_metrics_final"], info[f"{dataset}_loss_final"]) == (value, loss)
        assert epoch == (best_epoch if restored else len(info["training_loss"]))
        assert info["training_loss_final"] == info["training_loss"][epoch - 1]
        assert best_value == max(info[f"{dataset}_metrics"])
        trial.call("madlib_evaluate", out, rows, f"e_{out}_{mst_key}", mst_key=mst_key)
        measured = trial.read_row(f"SELECT loss, metric FROM e_{out}_{mst_key}")
        assert measured == {"loss": pytest.approx(loss, rel=1e-5), "metric": pytest.approx(value)}


def test_a_single_model_tells_of_its_best_state(trial: Trial) -> None:
    trial.call(
        "madlib_fit", "packed", "alone", "arch", 1, RESTLESS[0], "batch_size=10", 10,
        options={"restore_best": True, "seed": 7, "threads": 1},
    )  # fmt: skip
    row = trial.read_row("SELECT * FROM alone_summary")
    assert row["training_metrics_final"] == max(row["training_metrics"])
    trial.call("madlib_evaluate", "alone", "packed", "e_alone")
    assert trial.value("SELECT metric FROM e_alone") == pytest.approx(row["training_metrics_final"])


def test_a_search_keeps_by_the_loss_and_says_so(trial: Trial) -> None:
    trial.sql(
        "SELECT cerebro.madlib_keras_automl('packed', 'found', 'arch', 'won', ARRAY[1], %s, %s, 'median', %s,"
        " random_state => 3, options => %s)",
        "{'loss': ['categorical_crossentropy'], 'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.3,"
        " 0.5], 'momentum': [0.9]}], 'metrics': [['accuracy']]}",
        "{'batch_size': [10], 'epochs': [1]}",
        "num_configs=2, num_iterations=8",
        '{"restore_best": true, "threads": 1}',
    )  # fmt: skip
    run_id = trial.value("SELECT run_id FROM found_summary")
    for mst_key, _, value, loss, *_ in board(trial, run_id):
        info = trial.read_row("SELECT * FROM found_info WHERE mst_key = %s", mst_key)
        assert loss == info["training_loss_final"] == min(info["training_loss"])
        assert value == info["training_metrics_final"]


def test_a_fit_keeps_by_the_loss_if_the_call_says_so(trial: Trial) -> None:
    options = {"restore_best": True, "compare_by": "loss"}
    run_id = trial.fit("packed", "by_loss", "restless", 10, options=options)
    # The rows are so few that the first epoch with the best accuracy is not the one with the least loss.
    apart = 0
    for mst_key, _, value, loss, epoch, *_ in board(trial, run_id):
        info = trial.read_row("SELECT * FROM by_loss_info WHERE mst_key = %s", mst_key)
        losses, values = info["training_loss"], info["training_metrics"]
        assert loss == info["training_loss_final"] == min(losses) == losses[epoch - 1]
        assert value == info["training_metrics_final"] == values[epoch - 1]
        apart += values.index(max(values)) != epoch - 1
    assert apart


def test_what_to_compare_by_needs_something_to_compare(trial: Trial) -> None:
    with pytest.raises(psycopg2.Error, match="compare_by is given without restore_best, patience or target"):
        trial.fit("packed", "never", "restless", 1, options={"compare_by": "loss"})


def test_of_equally_good_configs_the_one_with_the_lower_loss_is_first(trial: Trial) -> None:
    chosen = [f"loss='categorical_crossentropy',optimizer='SGD(lr={r})',{ALWAYS_RIGHT}" for r in (1e-9, 0.1)]
    trial.select("equal", [1], chosen, ["batch_size=10,epochs=1"])
    trial.notices()
    found = board(trial, trial.fit("packed", "equal_out", "equal", 3))
    assert best_told(trial) == (1.0, found[0][0])
    assert [row[:3] for row in found] == [(2, 1, 1.0), (1, 2, 1.0)]


def test_twins_have_ranks_in_the_order_of_their_keys(trial: Trial) -> None:
    """Two configs that learn nothing are equally bad; the one with the lower `mst_key` is ranked first."""
    still = f"loss='categorical_crossentropy',optimizer='SGD(lr=1e-30)',{ALWAYS_RIGHT}"
    net = nets.mlp(FEATURES)
    begun = trial.model(net, weights=random_weights(net))
    trial.select("twins", [begun], [still], ["batch_size=10,epochs=1", "batch_size=20,epochs=1"])
    trial.notices()
    found = board(trial, trial.fit("packed", "twins_out", "twins", 1))
    assert found[0][3] == found[1][3]
    assert [row[:2] for row in found] == [(1, 1), (2, 2)]
    assert best_told(trial)[1] == 1


def test_a_config_that_was_not_measured_has_no_rank(trial: Trial) -> None:
    trial.select("unmeasured", [1], [SGD], ["batch_size=10,epochs=1", "batch_size=20,epochs=1"])
    run_id = trial.fit("packed", "unmeasured_out", "unmeasured", 5, options={"max_visits": 3})
    found = {row[0]: row[1:3] for row in board(trial, run_id)}
    assert sorted((rank is None, value is None) for rank, value in found.values()) == [
        (False, False), (True, True),
    ]  # fmt: skip
