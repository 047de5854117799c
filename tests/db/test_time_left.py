"""The time that is left: the view and the run that goes on have one model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import nets
from cerebro_plpy.planner.costs import CostModel, RunPace
from trial import ADAM, SGD, Trial, blobs, rows_of

FEATURES = 12
VISITS = (
    "SELECT c.kind, v.segment, c.visit_seconds, date_part('epoch', v.started_at),"
    " date_part('epoch', v.ended_at)"
    " FROM cerebro._visit AS v JOIN cerebro._config AS c USING (run_id, mst_key)"
    " WHERE v.run_id = %s ORDER BY v.ended_at"
)
LEFT = (
    "SELECT p.mst_key, p.seconds_left, p.visits_total - p.visits_done, c.kind, c.visit_seconds"
    " FROM cerebro.progress AS p JOIN cerebro._config AS c USING (run_id, mst_key) WHERE p.run_id = %s"
)


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(240, features=FEATURES)))
    trial.pack("blobs", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.select("four", [1], [ADAM, SGD], ["batch_size=10,epochs=1", "batch_size=40,epochs=1"])


def test_the_view_says_what_the_run_says(trial: Trial) -> None:
    run = trial.value("SELECT nextval('cerebro._run_id_seq')") + 1
    trial.call(
        "madlib_fit_multiple_model", "packed", "out", "four", 300,
        options={"seed": 7, "threads": 1, "backend": "jax", "background": True},
    )  # fmt: skip
    compared, remaining = 0, set[bool]()
    while trial.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run) == "running":
        trial.sql("BEGIN ISOLATION LEVEL REPEATABLE READ")
        left, visits = trial.sql(LEFT, run), trial.sql(VISITS, run)
        trial.sql("COMMIT")
        costs, pace, seen = CostModel(), RunPace(), set[tuple[str, int]]()
        for kind, segment, units, begin, end in visits:
            costs.record(kind, units, end - begin, first=(kind, segment) not in seen)
            pace.record(begin, end)
            seen.add((kind, segment))
        for _, seconds_left, visits_left, kind, units in left:
            if seconds_left is not None and visits_left:
                expected = costs.seconds(kind, visits_left * units) * pace.factor(min(2, len(left)))
                assert seconds_left == pytest.approx(expected, rel=1e-3)
                compared += 1
        (plan,) = json.loads(trial.value("SELECT cerebro.explain_run(%s, 'json')", run))
        remaining.add(plan.get("Remaining Time", 0) > 0)
    assert compared > 10 and True in remaining
    (plan,) = json.loads(trial.value("SELECT cerebro.explain_run(%s, 'json')", run))
    assert "Remaining Time" not in plan
    assert trial.sql("SELECT DISTINCT seconds_left FROM cerebro.progress WHERE run_id = %s", run) == [(None,)]


@pytest.mark.postgresql
def test_runs_that_crashed_cost_nothing(trial: Trial) -> None:
    """Their last event is that they run; nobody waits for what they would still take."""
    run = trial.value("SELECT nextval('cerebro._run_id_seq')") + 1
    trial.call(
        "madlib_fit_multiple_model", "packed", "crashed", "four", 300,
        options={"seed": 7, "threads": 1, "backend": "jax", "background": True},
    )  # fmt: skip
    visits = "SELECT visits_done FROM cerebro.runs WHERE run_id = %s"
    while trial.value(visits, run) < 20:
        pass
    assert read_for_speeds(trial) > 0
    trial.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'cerebro drive%%'"
    )
    while trial.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run) != "interrupted":
        pass
    last = "SELECT event FROM cerebro._run_event WHERE run_id = %s ORDER BY at DESC LIMIT 1"
    assert trial.value(last, run) == "running"
    assert read_for_speeds(trial) == 0
    trial.sql("SELECT cerebro.forget(%s)", run)


def read_for_speeds(trial: Trial) -> int:
    """How many visits the view looks at to say how fast runs are: those that it puts in their order."""
    (plan,) = trial.value("EXPLAIN (ANALYZE, FORMAT json) SELECT * FROM cerebro.progress")
    return sum(node["Actual Rows"] for node in nodes(plan["Plan"]) if node["Node Type"] == "WindowAgg")


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def test_a_config_that_was_not_visited_yet_has_time_left_too(trial: Trial) -> None:
    kinds = trial.sql("SELECT DISTINCT kind, visit_seconds > 0 FROM cerebro._config")
    assert len(kinds) == 4 and all(known for _, known in kinds)
