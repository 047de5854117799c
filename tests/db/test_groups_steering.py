"""Steering a run of groups: a config is steered on one group, and new configs train on all groups."""

from __future__ import annotations

import psycopg2
import pytest

import nets
from fixtures import execute
from steering import Run
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

FEATURES = 6
EPOCHS = 400
OPTIONS = {"checkpoint_every": 4, "fuse": "off"}


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(120, features=FEATURES)))
    trial.sql(
        "CREATE TABLE sales AS SELECT x, y, (ARRAY['NL', 'BE', NULL])[1 + number % 3] AS country"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )
    trial.pack("sales", "packed", options={"group_by": "country"})
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [SGD], ["batch_size=10,epochs=1"])
    trial.select("more", [1], [ADAM], ["batch_size=10,epochs=1"])
    trial.select("even", [1], [ADAM], ["batch_size=10,class_weight='balanced'"])


def unit(run: Run, country: str, key: int = 1) -> int:
    return run.ask(
        "SELECT mst_key FROM cerebro.progress WHERE run_id = %s AND coalesce(config_key, mst_key) = %s"
        " AND group_key::json ->> 'country' = %s ORDER BY mst_key LIMIT 1", run.run_id, key, country,
    )  # fmt: skip


def steered(run: Run, out: str) -> dict[str, int]:
    """Stop a config on one group, extend and clone one on another, and add one; return their keys."""
    run.start(out, "configs", EPOCHS, **OPTIONS)
    run.until(lambda: run.ask("SELECT count(*) FROM cerebro._visit WHERE run_id = %s", run.run_id) > 2)
    run.steer("pause")
    run.answered()
    belgian, dutch = unit(run, "BE"), unit(run, "NL")
    run.steer("stop_config", belgian)
    run.steer("set_epochs", dutch, EPOCHS + 8)
    (cloned,) = run.steer("clone_config", dutch, None, None, True)
    (added,) = run.steer("add_configs", "more")
    return {"cloned": cloned, "added": added, "stopped": belgian}


def expect(trial: Trial, out: str, asked: dict[str, int]) -> None:
    of = f"SELECT country, status, model_size IS NOT NULL, training_loss_final IS NOT NULL FROM {out}_info"
    first = trial.sql(f"{of} WHERE mst_key = 1 ORDER BY 1")
    assert first == [
        ("BE", "stopped", True, True), ("NL", "finished", True, True), (None, "finished", True, True),
    ]  # fmt: skip
    assert trial.sql(f"{of} WHERE mst_key = %s", asked["cloned"]) == [("NL", "finished", True, True)]
    assert [row[:2] for row in trial.sql(f"{of} WHERE mst_key = %s ORDER BY 1", asked["added"])] == [
        ("BE", "finished"), ("NL", "finished"), (None, "finished"),
    ]  # fmt: skip
    run_id = trial.value(f"SELECT run_id FROM {out}_summary")
    reached = dict(
        trial.sql("SELECT mst_key, max(epoch) FROM cerebro.visits WHERE run_id = %s GROUP BY 1", run_id)
    )
    assert reached[asked["stopped"]] < EPOCHS
    assert sorted(reached.values())[-1] == EPOCHS + 8
    assert trial.value(f"SELECT count(*) FROM {out}") == 7


def test_configs_of_groups_are_stopped_cloned_and_added(run: Run, trial: Trial) -> None:
    asked = steered(run, "steered")
    run.steer("resume")
    run.end()
    expect(trial, "steered", asked)


def test_a_run_that_was_steered_is_resumed(run: Run, trial: Trial) -> None:
    asked = steered(run, "torn")
    run.steer("resume")
    run.answered()
    execute(run.person, "SELECT pg_cancel_backend(%s)", trial.connection.info.backend_pid)
    with pytest.raises(psycopg2.errors.QueryCanceled):
        run.end()
    trial.sql("SELECT cerebro.resume(%s)", run.run_id)
    expect(trial, "torn", asked)


def test_what_makes_no_sense_is_refused(run: Run, trial: Trial) -> None:
    run.start("refused", "configs", EPOCHS, **OPTIONS)
    assert "has no config 99" in run.refused("stop_config", 99)
    assert "class_weight 'balanced' cannot come into a run of groups" in run.refused("add_configs", "even")
    belgian = unit(run, "BE")
    run.steer("stop_config", belgian)
    assert "is stopped already" in run.refused("stop_config", belgian)
    run.steer("stop", False)
    run.end()
    assert trial.sql("SELECT DISTINCT status FROM refused_info") == [("stopped",)]
    assert trial.value("SELECT count(training_loss_final) FROM refused_info") == trial.value(
        "SELECT count(*) FROM refused"
    )


def test_a_search_on_groups_takes_no_configs_but_its_own(run: Run, trial: Trial) -> None:
    trial.call(
        "madlib_keras_automl", "packed", "found", "arch", "best", [1],
        "{'loss': ['categorical_crossentropy'], 'optimizer_params_list': [{'lr': [0.01, 0.1, 'log']}]}",
        "{'batch_size': [10]}", "median", "num_configs=2, num_iterations=4000, min_iterations=1", 1,
        options={"backend": "jax", "threads": 1, "background": True},
    )  # fmt: skip
    run.run_id = trial.value("SELECT cerebro.last_run()")
    assert "takes no configs but its own" in run.refused("add_configs", "more")
    run.steer("stop", False)
    assert trial.value("SELECT cerebro.wait(%s)", run.run_id) == "finished"
    assert trial.value("SELECT count(*) FROM found_info WHERE reason LIKE '%%stopped it'") > 0


def test_a_config_counts_once_and_is_told_once(run: Run, trial: Trial) -> None:
    """A config on three groups counts once against `max_configs`, and one notice says that it starts."""
    trial.notices()
    run.start("counted", "configs", EPOCHS, max_configs=2, **OPTIONS)
    run.until(lambda: run.ask("SELECT count(*) FROM cerebro._visit WHERE run_id = %s", run.run_id) > 2)
    run.steer("pause")
    (added,) = run.steer("add_configs", "more")
    assert "may have 2 configs, and has 2" in run.refused("add_configs", "more")
    run.steer("resume")
    run.end()
    assert trial.notices().count("start config") == 1
    assert trial.value("SELECT count(*) FROM counted WHERE mst_key = %s", added) == 3
