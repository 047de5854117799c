"""Views in joins, aggregates and set operations return the same rows as tables with the views' contents."""

from __future__ import annotations

import itertools

import pytest

import nets
from trial import ADAM, Trial, blobs, rows_of

pytestmark = [pytest.mark.greenplum, pytest.mark.usefixtures("the_coordinator_lives_on")]
FEATURES = 6
# With a single run, a wrong order of rows could not be noticed.
RUNS = 8
GROUPED = "(SELECT run_id, count(*) AS n FROM {{{}}} GROUP BY 1) AS {}"
A, B, OF_A, OF_B = "{a} AS a", "{b} AS b", GROUPED.format("a", "a"), GROUPED.format("b", "b")
MINE = "(SELECT run_id, count(*) AS n FROM runs_of_mine GROUP BY 1) AS m"
# Queries on two views, {a} and {b}.
JOINS = {
    "left": f"SELECT a.run_id, count(b.run_id) FROM {A} LEFT JOIN {B} USING (run_id) GROUP BY 1",
    "inner": f"SELECT run_id, count(*) FROM {A} JOIN {B} USING (run_id) GROUP BY 1",
    "exchanged": f"SELECT b.run_id, count(a.run_id) FROM {A} RIGHT JOIN {B} USING (run_id) GROUP BY 1",
    "grouped": f"SELECT a.run_id, a.n, b.n FROM {OF_A} LEFT JOIN {OF_B} USING (run_id)",
    "grouped and exchanged": f"SELECT b.run_id, a.n, b.n FROM {OF_A} RIGHT JOIN {OF_B} USING (run_id)",
}
# Queries on one view, {a}, and a user's table of runs.
ALONE = {
    "aggregate": "SELECT count(*), count(DISTINCT run_id), min(run_id), max(run_id) FROM {a}",
    "grouped by text": "SELECT run_id::text, count(*) FROM {a} GROUP BY 1",
    "window": "SELECT run_id, rank() OVER (ORDER BY run_id), count(*) OVER (PARTITION BY run_id) FROM {a}",
    "in": "SELECT run_id FROM runs_of_mine WHERE run_id IN (SELECT run_id FROM {a})",
    "not in": "SELECT run_id FROM runs_of_mine WHERE run_id NOT IN (SELECT run_id FROM {a})",
    "exists": "SELECT run_id FROM runs_of_mine AS m WHERE EXISTS"
    " (SELECT FROM {a} AS x WHERE x.run_id = m.run_id)",
    "union": "SELECT run_id FROM {a} UNION SELECT run_id FROM runs_of_mine",
    "union all": "SELECT run_id, count(*) FROM"
    " (SELECT run_id FROM {a} UNION ALL SELECT run_id FROM runs_of_mine) AS x GROUP BY 1",
    "except": "SELECT run_id FROM runs_of_mine EXCEPT SELECT run_id FROM {a}",
    "a table on the left": f"SELECT m.run_id, m.n, a.n FROM {MINE} LEFT JOIN {OF_A} USING (run_id)",
    "a table on the right": f"SELECT a.run_id, a.n, m.n FROM {OF_A} LEFT JOIN {MINE} USING (run_id)",
}


@pytest.fixture(scope="module")
def views(trial: Trial) -> dict[str, str]:
    """Return, for each view with a column run_id, the name of a table with a copy of the view's rows."""
    x, y = blobs(60, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM], ["batch_size=8,epochs=1", "batch_size=16,epochs=1"])
    for number in range(RUNS):
        trial.fit("packed", f"models_{number}", "mst", 1)
    trial.sql("CREATE TABLE runs_of_mine AS SELECT run_id FROM cerebro.visits DISTRIBUTED RANDOMLY")
    found = trial.sql(
        "SELECT v::text FROM cerebro._usage_views() AS v JOIN pg_attribute AS a ON a.attrelid = v"
        " AND a.attname = 'run_id' ORDER BY 1"
    )
    held = {}
    for (view,) in found:
        held[view] = f"held_{view.partition('.')[2]}"
        trial.sql(f"CREATE TEMP TABLE {held[view]} AS SELECT * FROM {view}")
    assert {"cerebro.runs", "cerebro.visits", "cerebro.progress", "cerebro.leaderboard"} <= held.keys()
    return held


@pytest.mark.parametrize("query", JOINS.values(), ids=JOINS)
def test_a_join_of_two_views_has_all_its_rows(trial: Trial, views: dict[str, str], query: str) -> None:
    wrong = [
        (a, b)
        for a, b in itertools.product(views, repeat=2)
        if _rows(trial, query, a=a, b=b) != _rows(trial, query, a=views[a], b=views[b])
    ]
    assert not wrong


@pytest.mark.parametrize("query", ALONE.values(), ids=ALONE)
def test_so_has_what_else_is_asked_of_one(trial: Trial, views: dict[str, str], query: str) -> None:
    assert not [v for v in views if _rows(trial, query, a=v) != _rows(trial, query, a=views[v])]


def _rows(trial: Trial, query: str, **names: str) -> list[tuple[object, ...]]:
    return trial.sql(f"SELECT * FROM ({query.format(**names)}) AS found ORDER BY found::text")
