"""The remaining time in the view cerebro.progress equals the estimate of the run itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import nets
from cerebro_plpy.planner.estimating.costs import EVALUATION_SHARE, CostModel, RunPace, evaluations_due
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

FEATURES = 12
# What has been done: visits, and what was measured of a config on a segment.
DONE = """
    SELECT FALSE AS evaluates, c.kind, v.segment, c.visit_seconds,
        date_part('epoch', v.ended_at - v.started_at), date_part('epoch', v.ended_at) AS ended
    FROM cerebro._visit AS v JOIN cerebro._config AS c USING (run_id, mst_key) WHERE v.run_id = %s
    UNION ALL
    SELECT TRUE, c.kind, e.segment, c.visit_seconds, sum(e.seconds), date_part('epoch', m.at)
    FROM cerebro._evaluation AS e
    JOIN (
        SELECT run_id, mst_key, epoch, min(at) AS at FROM cerebro._metric GROUP BY run_id, mst_key, epoch
    ) AS m USING (run_id, mst_key, epoch)
    JOIN cerebro._config AS c USING (run_id, mst_key)
    WHERE e.run_id = %s GROUP BY c.kind, e.segment, c.visit_seconds, e.mst_key, e.epoch, m.at
    ORDER BY ended, segment
"""
LEFT = """
    SELECT p.seconds_left, p.visits_total - p.visits_done, p.epochs, c.kind, c.visit_seconds,
        COALESCE((
            SELECT max(m.epoch) FROM cerebro._metric AS m WHERE (m.run_id, m.mst_key) = (p.run_id, p.mst_key)
        ), 0)
    FROM cerebro.progress AS p JOIN cerebro._config AS c USING (run_id, mst_key) WHERE p.run_id = %s
"""
SEGMENTS, FREQUENCY, EPOCHS = 2, 7, 120


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(240, features=FEATURES)))
    trial.pack("blobs", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.select("four", [1], [ADAM, SGD], ["batch_size=10,epochs=1", "batch_size=40,epochs=1"])


def begin(trial: Trial, out: str) -> int:
    run = trial.value("SELECT nextval('cerebro._run_id_seq')") + 1
    trial.call(
        "madlib_fit_multiple_model", "packed", out, "four", EPOCHS, metrics_compute_frequency=FREQUENCY,
        options={"seed": 7, "threads": 1, "backend": "jax", "background": True},
    )  # fmt: skip
    return run


@dataclass
class Model:
    """The costs and the pace by which a run estimates its remaining time."""

    visits: CostModel = field(default_factory=CostModel)
    evaluations: CostModel = field(default_factory=CostModel)
    pace: RunPace = field(default_factory=RunPace)
    _seen: set[tuple[bool, str, int]] = field(default_factory=set)

    def take(
        self, evaluates: bool, kind: str, segment: int, units: float, seconds: float, end: float
    ) -> None:
        costs = self.evaluations if evaluates else self.visits
        costs.record(kind, units, seconds, first=(evaluates, kind, segment) not in self._seen)
        self.pace.record(end - seconds, end)
        self._seen.add((evaluates, kind, segment))

    def seconds(self, kind: str, units: float, visits: int, evaluations: int) -> float:
        if self.evaluations.known:
            measuring = self.evaluations.seconds(kind, evaluations * units)
        else:
            measuring = EVALUATION_SHARE * self.visits.seconds(kind, evaluations * units)
        return (self.visits.seconds(kind, visits * units) + measuring) * self.pace.factor(SEGMENTS)


def test_the_view_says_what_the_run_says(trial: Trial) -> None:
    run = begin(trial, "out")
    remaining, known = set[bool](), 0
    while trial.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run) == "running":
        trial.sql("BEGIN ISOLATION LEVEL REPEATABLE READ")
        left, done = trial.sql(LEFT, run), trial.sql(DONE, run, run)
        trial.sql("COMMIT")
        model = Model()
        for one in done:
            model.take(*one)
        for seconds_left, visits, epochs, kind, units, measured in left:
            # While nothing but compiling was seen nobody knows.
            assert seconds_left is None or model.visits.known
            if seconds_left is not None:
                due = SEGMENTS * evaluations_due(measured, epochs, FREQUENCY)
                assert seconds_left == pytest.approx(model.seconds(kind, units, visits, due), rel=1e-3)
                known += bool(visits)
                assert (seconds_left > 0) == (visits + due > 0)
        plan = json.loads(trial.value("SELECT cerebro.explain_run(%s, 'json')", run))[0]["Plan"]
        remaining.add((plan.get("Remaining Time") or 0) > 0)
    assert known > 10 and True in remaining
    plan = json.loads(trial.value("SELECT cerebro.explain_run(%s, 'json')", run))[0]["Plan"]
    assert "Remaining Time" not in plan
    assert trial.sql("SELECT DISTINCT seconds_left FROM cerebro.progress WHERE run_id = %s", run) == [(None,)]


@pytest.mark.postgresql
def test_runs_that_crashed_cost_nothing(trial: Trial) -> None:
    """A crashed run, whose last event is "running", is not read to estimate the speed of runs."""
    run = begin(trial, "crashed")
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
    """Return how many visits cerebro.progress sorts in order to estimate the speed of runs."""
    (plan,) = trial.value("EXPLAIN (ANALYZE, FORMAT json) SELECT * FROM cerebro.progress")
    return sum(node["Actual Rows"] for node in nodes(plan["Plan"]) if node["Node Type"] == "WindowAgg")


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def test_a_config_that_was_not_visited_yet_has_time_left_too(trial: Trial) -> None:
    kinds = trial.sql("SELECT DISTINCT kind, visit_seconds > 0 FROM cerebro._config")
    assert len(kinds) == 4 and all(known for _, known in kinds)
