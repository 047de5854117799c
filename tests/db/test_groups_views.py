"""The views of schema cerebro, for a run of groups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

FEATURES, ROWS = 6, 300
OPTIONS = {"min_rows": 10, "min_classes": 2, "fallback": True}
# Tables with rows for each config or group.
READ = ("_config", "_group", "_metric")


@pytest.fixture(scope="module", autouse=True)
def runs(trial: Trial) -> list[int]:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(ROWS, features=FEATURES)))
    trial.sql(
        "CREATE TABLE sales AS SELECT row_number() OVER () AS id, x, y, CASE WHEN y = 0 AND number % 3 = 0"
        " THEN 'one class' WHEN number <= 5 THEN 'few rows' WHEN number % 2 = 0 THEN 'even' END AS shop"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )
    trial.pack("sales", "packed", options={"group_by": "shop"})
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM, SGD], ["batch_size=10"])
    return [trial.fit("packed", f"models{n}", "configs", 2, options=OPTIONS) for n in range(2)]


def test_groups_have_their_best_configs_and_reasons(trial: Trial, runs: list[int]) -> None:
    for number, run in enumerate(runs):
        found = trial.sql(
            "SELECT group_key::json ->> 'shop', is_fallback, status, reason, mst_key, value, configs"
            " FROM cerebro.groups WHERE run_id = %s",
            run,
        )
        info = trial.sql(
            "SELECT shop, is_fallback, status, reason, mst_key, training_metrics_final, training_loss_final"
            f" FROM models{number}_info"
        )
        assert {row[:2] for row in found} == {row[:2] for row in info}
        for shop, is_fallback, status, reason, key, value, configs in found:
            ours = [row for row in info if row[:2] == (shop, is_fallback)]
            if status == "measured":
                best = min(ours, key=lambda row: (-row[5], row[6], row[4]))
                assert (key, value, reason, configs) == (best[4], pytest.approx(best[5]), None, 2)
            else:
                assert ours[0][2] == status == "left out"
                # The number of classes of a group is not stored with the run.
                known = "fewer classes than min_classes 2" if shop == "one class" else ours[0][3]
                assert (reason, configs) == (known, 0)
        assert trial.value("SELECT groups FROM cerebro.runs WHERE run_id = %s", run) == 4


def test_the_number_of_a_unit_leads_to_its_progress_and_metrics(trial: Trial, runs: list[int]) -> None:
    units = trial.sql(
        "SELECT b.mst_key, b.group_key, p.config_key, p.group_key, m.value = b.value"
        " FROM cerebro.leaderboard AS b"
        " LEFT JOIN cerebro.progress AS p ON p.run_id = b.run_id AND p.mst_key = b.unit_key"
        " LEFT JOIN cerebro.metrics AS m ON m.run_id = b.run_id AND m.mst_key = b.unit_key"
        " AND m.metric = b.metric AND m.epoch = b.epoch WHERE b.run_id = %s",
        runs[0],
    )
    assert len(units) == 6
    for key, group, config_key, same_group, same_value in units:
        assert (key, group, True) == (config_key or key, same_group, same_value)


@pytest.mark.parametrize("view", ["groups", "leaderboard"])
def test_of_one_run_nothing_else_is_read(trial: Trial, runs: list[int], view: str) -> None:
    """A view that is read for one run reads no rows of another run, which may have thousands of groups."""
    ((plan,),) = trial.sql(f"EXPLAIN (FORMAT JSON) SELECT * FROM cerebro.{view} WHERE run_id = {runs[1]}")
    root = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    scans = [node for node in _nodes(root) if node.get("Relation Name") in READ]
    # Except for the scans that find runs of groups.
    read = [node for node in scans if not node["Alias"].startswith("q")]
    assert read
    for node in read:
        said = " ".join(str(node.get(key, "")) for key in ("Index Cond", "Filter", "Recheck Cond"))
        assert "run_id = " in said, node
    assert [node for node in _nodes(root) if node.get("Join Type") == "Full"]


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", []):
        yield from _nodes(inner)
