"""Plans of runs of groups: estimates before a run, and estimates beside measured costs after it."""

from __future__ import annotations

import json
from typing import Any

import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

FEATURES, ROWS = 6, 240
JAX = {"backend": "jax", "threads": 1, "seed": 1}


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(ROWS, features=FEATURES)))
    trial.sql(
        "CREATE TABLE sales AS SELECT x, y, number % 20 AS shop"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs WHERE y >= 0) AS b WHERE number > 6"
    )
    trial.pack("sales", "packed", options={"group_by": "shop"})
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM, SGD], ["batch_size=5,epochs=1"])


def plan(trial: Trial, epochs: int = 4, what_if: dict[str, Any] | None = None, **options: Any) -> Any:
    found = trial.value(
        "SELECT cerebro.explain_fit('packed', 'configs', %s, options => %s, format => 'json', what_if => %s)",
        epochs, json.dumps({**JAX, **options}), what_if and json.dumps(what_if),
    )  # fmt: skip
    return json.loads(found)[0]["Plan"]


def test_a_plan_counts_groups_and_bundles(trial: Trial) -> None:
    found = plan(trial)
    assert found["Detail"] == "2 configs for each of 20 groups"
    assert found["Groups"] == ("20 on one segment each, in 4 bundles; each bundle trains as one program")
    assert found["Visits"] == 2 * 20 * 2 * 4
    assert found["Evaluations"] == 40
    assert found["Rows"].startswith("234 for training")
    trains = [node for node in found["Plans"] if node["Node Type"] == "Train"]
    assert [node["Detail"] for node in trains] == ["1 config on 20 groups of model 1, batch size 5"] * 2
    assert found["Kept State Bytes"] == 20 * sum(node["State Bytes"] for node in trains)
    assert found["Memory Bytes"] == 2 * found["Session Memory Bytes"]
    text = "\n".join(row[0] for row in trial.sql("SELECT cerebro.explain_fit('packed', 'configs', 4)"))
    assert "2 configs for each of 20 groups" in text and "Groups: 20 on one segment each" in text


def test_a_plan_follows_the_options_and_what_is_supposed(trial: Trial) -> None:
    base = plan(trial)
    assert plan(trial, min_rows=12)["Detail"] == "2 configs for each of 14 groups"
    assert "a model of all rows for the others" in plan(trial, min_rows=12, fallback=True)["Groups"]
    assert "one program" not in plan(trial, fuse="off")["Groups"]
    assert plan(trial, fuse="off")["Total Time"] > base["Total Time"]
    often = plan(trial, epochs=12, checkpoint_every=1)
    assert often["Log Bytes"] > plan(trial, epochs=12)["Log Bytes"]
    larger = plan(trial, what_if={"rows": 234000})
    assert "cut over all segments" not in larger["Groups"] or larger["Visits"] == base["Visits"]
    assert larger["Total Time"] > base["Total Time"]
    assert plan(trial, what_if={"segments": 1})["Groups"].startswith("20 on one segment each, in 2 bundles")
    assert plan(trial, patience=1)["Advice"][0] == "what gets no better is stopped earlier: this is the most"


def test_a_plan_writes_nothing(trial: Trial) -> None:
    counted = (
        "SELECT (SELECT count(*) FROM cerebro._run), (SELECT last_value FROM cerebro._run_id_seq),"
        " (SELECT count(*) FROM pg_class WHERE relpersistence = 'p')"
    )
    before = trial.sql(counted)
    plan(trial)
    assert trial.sql(counted) == before


def test_what_is_left_to_the_planner_is_chosen(trial: Trial) -> None:
    trial.notices()
    for out, options in (("fastest", {"plan": "fastest"}), ("chosen", {"backend": "auto"})):
        trial.call("madlib_fit_multiple_model", "packed", out, "configs", 2, options={"seed": 1, **options})
        assert "chosen by the planner: backend " in trial.notices()
        assert trial.value(f"SELECT count(*) FROM {out}") == 40


def test_a_run_is_explained_beside_what_it_took(trial: Trial) -> None:
    run = trial.fit("packed", "models", "configs", 4, options={**JAX, "fallback": True, "min_rows": 12})
    found = json.loads(trial.value("SELECT cerebro.explain_run(%s, 'json')", run))[0]["Plan"]
    assert found["Detail"] == "2 configs for each of 14 groups"
    assert found["Settings"]["epochs"] == 4
    trains = [node for node in found["Plans"] if node["Node Type"] == "Train"]
    assert trains and all(node["Actual Work Time"] > 0 for node in trains)
    assert found["Actual Visits"] == trial.value("SELECT count(*) FROM cerebro._visit WHERE run_id = %s", run)


def test_a_search_of_groups_is_not_explained(trial: Trial) -> None:
    grid = "{'loss': ['categorical_crossentropy'], 'optimizer_params_list': [{'lr': [0.01, 0.1, 'log']}]}"
    with pytest.raises(psycopg2.Error, match="a search of groups cannot be explained"):
        trial.call("explain_automl", "packed", "arch", [1], grid, "{'batch_size': [5]}", "asha")
