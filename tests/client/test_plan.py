"""Plans in the client: before and after a run, as text, as a tree in a notebook, and as data."""

from __future__ import annotations

import pytest
from cerebro_db import CerebroError, Database, Packed, Plan, Run

from cars import GRID


@pytest.fixture(scope="module")
def plan(client: Database, packed: Packed, model: int) -> Plan:
    return client.fit(packed, {**GRID, "model": model}, epochs=3, seed=1, explain=True)


@pytest.mark.doors("client", "explain")
def test_a_plan_says_how_long_it_would_take(plan: Plan) -> None:
    assert 0 < plan.low < plan.seconds < plan.high
    assert plan.actual_seconds is None
    assert str(plan).startswith("Fit 2 configs")
    assert plan.tree["Visits"] == 2 * 2 * 3
    assert plan.alternatives[0]["Total Time"] <= plan.alternatives[-1]["Total Time"]


def test_it_leaves_no_table(client: Database, packed: Packed, model: int) -> None:
    query = "SELECT count(*) AS n FROM pg_class WHERE relname LIKE '%explained%'"
    client.fit(packed, {**GRID, "model": model}, epochs=3, explain=True)
    assert client.rows(query) == [{"n": 0}]
    with pytest.raises(CerebroError, match="unknown option"):
        client.fit(packed, {**GRID, "model": model}, epochs=3, explain=True, nosuch=1)
    assert client.rows(query) == [{"n": 0}]


def test_a_notebook_shows_a_tree_whose_text_is_text(plan: Plan) -> None:
    shown = plan._repr_html_()
    assert shown.startswith("<details open")
    assert shown.count("<details") == 1 + len(plan.tree["Plans"])
    assert "<script" not in Plan({**plan.tree, "Detail": "<script>"}, "")._repr_html_()


def test_a_search_has_a_plan(client: Database, packed: Packed, model: int) -> None:
    found = client.fit(
        packed,
        {**GRID, "model": model},
        epochs=3,
        search={"method": "asha", "eta": 3},
        configs=2,
        explain=True,
    )
    assert found.tree["Node Type"] == "Search by asha"


def test_a_run_is_explained_beside_what_it_took(run: Run) -> None:
    found = run.explain()
    assert found.tree["Actual Visits"] == 2 * 2 * 3
    assert found.actual_seconds
