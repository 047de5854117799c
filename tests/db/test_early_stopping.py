"""Options of the fit calls that end configs and runs early, keep the best state, and replay a run."""

from __future__ import annotations

import json
from typing import Any

import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES = 12
HOPELESS = SGD.replace("0.1", "1e-9")


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(120, features=FEATURES)))
    trial.pack("blobs", "packed")
    trial.table("held", "x real[], y integer", rows_of(*blobs(60, 1, FEATURES)))
    trial.pack_validation("held", "packed_val", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.select("two", [1], [HOPELESS, ADAM], ["batch_size=10,epochs=1"])


def fit(trial: Trial, out: str, epochs: int, **options: Any) -> int:
    return trial.fit(
        "packed", out, "two", epochs, validation_table="packed_val", options={"backend": "jax", **options}
    )


def info(trial: Trial, out: str) -> dict[int, dict[str, Any]]:
    rows = trial.sql(f"SELECT row_to_json(i) FROM {out}_info AS i")
    return {row["mst_key"]: row for (row,) in rows}


def visits(trial: Trial, run_id: int) -> dict[int, int]:
    query = "SELECT mst_key, count(*)::int FROM cerebro.visits WHERE run_id = %s GROUP BY 1"
    return {row[0]: row[1] for row in trial.sql(query, run_id)}


def test_a_config_that_gets_no_better_is_stopped(trial: Trial) -> None:
    run_id = fit(trial, "patient", 12, patience=2)
    hopeless = info(trial, "patient")[1]
    assert (hopeless["status"], hopeless["reason"]) == ("stopped", "it got no better in 2 evaluations")
    assert len(hopeless["validation_metrics"]) == 3
    assert visits(trial, run_id)[1] == 6
    decided = trial.sql(
        "SELECT decision, epoch, epochs, result_mst_key, result_epoch FROM cerebro.decisions"
        " WHERE run_id = %s AND mst_key = 1 ORDER BY number", run_id,
    )  # fmt: skip
    assert decided == [
        ("go_on", 0, 1, None, None), ("go_on", 1, 2, 1, 1), ("go_on", 2, 3, 1, 2), ("stop", 3, None, 1, 3),
    ]  # fmt: skip
    # The weights are the same as after three epochs without early stopping.
    fit(trial, "shorter", 3)
    assert trial.weights("shorter")[1] == trial.weights("patient")[1]


def test_a_run_that_may_end_early_says_at_most_how_much_it_does(trial: Trial) -> None:
    trial.notices()
    fit(trial, "told_most", 3, patience=1)
    assert "2 configs on 2 segments, at most 3 epochs for a config, at most 12 visits" in trial.notices()


def test_a_config_that_is_good_enough_is_stopped(trial: Trial) -> None:
    fit(trial, "whole", 8, restore_best=True)
    values = info(trial, "whole")[2]["validation_metrics"]
    target = sorted(values)[5]
    fit(trial, "good", 8, target=target)
    row = info(trial, "good")[2]
    reached = next(epoch for epoch, value in enumerate(values, 1) if value >= target)
    assert row["validation_metrics"] == values[:reached]
    ended = ("stopped", "it reached the target") if reached < 8 else ("finished", None)
    assert (row["status"], row["reason"]) == ended


def test_without_validation_training_decides_and_is_said_once(trial: Trial) -> None:
    told = "no validation table was given: the training rows decide"
    for validation, times in ((None, 1), ("packed_val", 0)):
        trial.notices()
        options = {"backend": "jax", "patience": 1}
        trial.fit("packed", f"told_{times}", "two", 2, validation_table=validation, options=options)
        assert trial.notices().count(told) == times


def test_the_best_state_is_the_result(trial: Trial) -> None:
    run_id = fit(trial, "best", 8, restore_best=True)
    for key, row in info(trial, "best").items():
        values = row["validation_metrics"]
        epoch = values.index(max(values)) + 1
        out = f"upto_{key}"
        if not trial.value("SELECT to_regclass(%s) IS NOT NULL", out):
            fit(trial, out, epoch)
        assert trial.weights(out)[key] == trial.weights("best")[key], (key, epoch)
    states = "SELECT count(*) FROM cerebro._state WHERE run_id = %s"
    assert trial.value(states, run_id) == 2
    made_again(trial, "best", run_id)
    assert trial.value(states, run_id) == 2


def made_again(trial: Trial, out: str, run_id: int) -> None:
    """Expect the same models from `resume` after their tables are gone."""
    weights = trial.weights(out)
    trial.sql(f"DROP TABLE {out}, {out}_info, {out}_summary")
    trial.notices()
    trial.value("SELECT cerebro.resume(%s)", run_id)
    assert trial.weights(out) == weights
    assert "WARNING" not in trial.notices()


def test_training_rows_need_not_be_measured(trial: Trial) -> None:
    """Weights and validation metrics stay as they are."""
    fit(trial, "measured", 3, restore_best=True)
    run_id = fit(trial, "lean", 3, restore_best=True, training_metrics=False)
    assert trial.weights("lean") == trial.weights("measured")
    for key, row in info(trial, "measured").items():
        lean = info(trial, "lean")[key]
        assert row["validation_loss"] == lean["validation_loss"] and row["training_loss"]
        assert {value for name, value in lean.items() if name.startswith("training_")} == {None}
    assert trial.sql("SELECT DISTINCT dataset FROM cerebro.metrics WHERE run_id = %s", run_id) == [
        ("validation",)
    ]
    with pytest.raises(psycopg2.Error, match="there are no validation rows to measure"):
        trial.fit("packed", "blind", "two", 1, options={"training_metrics": False})


def test_budgets(trial: Trial) -> None:
    run_id = fit(trial, "few", 50, max_visits=9)
    assert sum(visits(trial, run_id).values()) == 9
    assert {row["reason"] for row in info(trial, "few").values()} == {"the run's 9 visits are spent"}
    made_again(trial, "few", run_id)
    run_id = fit(trial, "short", 100_000, max_seconds=2)
    assert trial.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run_id) == "finished"
    assert {row["reason"] for row in info(trial, "short").values()} == {"the run's 2 seconds are spent"}
    with pytest.raises(psycopg2.Error, match="the run has 2 configs, and max_configs is 1"):
        fit(trial, "many", 1, max_configs=1)


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True])
def test_a_budget_that_was_exceeded_is_told_wherever_the_run_goes_on(trial: Trial, background: bool) -> None:
    out = f"long_{background}".lower()
    trial.select(f"{out}_configs", [1], [SGD], ["batch_size=1,epochs=4000"])
    options = json.dumps({"backend": "jax", "threads": 1, "max_seconds": 1, "background": background})
    trial.notices()
    trial.sql(
        "SELECT cerebro.madlib_fit_multiple_model('packed', %s, %s, 100000, options => %s)",
        out, f"{out}_configs", options,
    )  # fmt: skip
    run_id = trial.value("SELECT cerebro.last_run()")
    if background:
        assert trial.value("SELECT cerebro.wait(%s, '200 s')", run_id) == "finished"
    detail = trial.value("SELECT detail FROM cerebro.runs WHERE run_id = %s", run_id)
    assert detail is not None and detail.startswith("the budget of 1 s was exceeded by ")
    assert detail in trial.notices()


def test_a_replay(trial: Trial) -> None:
    run_id = fit(trial, "once", 6, patience=1, seed=11)
    fit(trial, "again", 6, patience=1, seed=11, replay=run_id)
    assert trial.weights("once") == trial.weights("again")
    with pytest.raises(psycopg2.Error, match="cannot be replayed by this call: its search is"):
        fit(trial, "other", 6, patience=2, seed=11, replay=run_id)
    with pytest.raises(psycopg2.Error, match="you have no run 99999"):
        fit(trial, "other", 6, patience=2, replay=99999)
    with pytest.raises(psycopg2.Error, match="you have no run NULL"):
        trial.sql("SELECT cerebro.wait(NULL)")


def test_wrong_options(trial: Trial) -> None:
    for options, message in (
        ({"patience": 0}, "option patience is 0"),
        ({"min_delta": 0.1}, "min_delta is given without patience"),
        ({"target": "high"}, "option target is high"),
        ({"restore_best": 1}, "option restore_best is 1"),
    ):
        with pytest.raises(psycopg2.Error, match=message):
            fit(trial, "wrong", 2, **options)
    with pytest.raises(psycopg2.Error, match="unknown option"):
        trial.sql(
            "SELECT cerebro.madlib_evaluate('once', 'packed', 'e', FALSE, 1, options => %s)",
            json.dumps({"patience": 1}),
        )


def test_a_target_for_the_loss_is_a_loss(trial: Trial) -> None:
    fit(trial, "by_loss", 8, restore_best=True, compare_by="loss")
    losses = info(trial, "by_loss")[2]["validation_loss"]
    target = sorted(losses)[5]
    fit(trial, "low", 8, target=target, compare_by="loss")
    row = info(trial, "low")[2]
    reached = next(epoch for epoch, value in enumerate(losses, 1) if value <= target)
    assert row["validation_loss"] == losses[:reached]
    ended = ("stopped", "it reached the target") if reached < 8 else ("finished", None)
    assert (row["status"], row["reason"]) == ended
