"""Every view in every usual kind of query answers and has a plan, and the coordinator never restarts."""

from __future__ import annotations

import pytest

import nets
from trial import ADAM, Trial, blobs, rows_of

pytestmark = [pytest.mark.greenplum, pytest.mark.usefixtures("the_coordinator_lives_on")]
FEATURES = 6
# Queries on a view {v} with its first column {c}; {w} selects one run if the view has a column run_id.
QUERIES = {
    "all of it": "SELECT * FROM {v}",
    "in order": "SELECT * FROM {v} ORDER BY 1, 2 LIMIT 3",
    "counted": "SELECT count(*) FROM {v}",
    "of one run": "SELECT * FROM {v} WHERE {w} ORDER BY 1",
    "grouped": "SELECT {c}, count(*) FROM {v} GROUP BY 1 ORDER BY 2 DESC",
    "joined with itself": "SELECT count(*) FROM {v} AS a JOIN {v} AS b USING ({c})",
    "joined with runs": "SELECT count(*) FROM cerebro.runs AS r"
    " JOIN {v} AS x ON x.{c}::text = r.run_id::text",
    "under a condition": "SELECT count(*) FROM cerebro.runs AS r WHERE EXISTS"
    " (SELECT FROM {v} AS x WHERE x.{c}::text = r.run_id::text)",
    "in a subquery": "SELECT (SELECT count(*) FROM {v})",
    "in a subquery for each row": "SELECT (SELECT count(*) FROM {v} AS x WHERE x.{c}::text = r.run_id::text)"
    " FROM cerebro.runs AS r",
    "in a common table expression": "WITH x AS (SELECT * FROM {v}) SELECT count(*) FROM x, x AS y",
    "in a new table": "CREATE TEMP TABLE made AS SELECT * FROM {v}",
}


@pytest.fixture(scope="module", autouse=True)
def run_id(trial: Trial) -> int:
    x, y = blobs(60, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM], ["batch_size=8,epochs=1", "batch_size=16,epochs=1"])
    return trial.fit("packed", "models", "mst", 2)


@pytest.fixture(scope="module")
def views(trial: Trial) -> dict[str, list[str]]:
    """Return the quoted column names of each view."""
    found = trial.sql(
        "SELECT v::text, array_agg(quote_ident(a.attname) ORDER BY a.attnum) FROM cerebro._usage_views() AS v"
        " JOIN pg_attribute AS a ON a.attrelid = v AND a.attnum > 0 GROUP BY 1 ORDER BY 1"
    )
    assert len(found) > 7
    return dict(found)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_every_view_answers_and_has_a_plan(
    trial: Trial, views: dict[str, list[str]], run_id: int, query: str
) -> None:
    for view, columns in views.items():
        where = f"run_id = {run_id}" if "run_id" in columns else "TRUE"
        written = query.format(v=view, c=columns[0], w=where)
        _answered(trial, written)


def test_so_does_each_of_its_columns(trial: Trial, views: dict[str, list[str]]) -> None:
    for view, columns in views.items():
        for column in columns:
            _answered(trial, f"SELECT {column} FROM {view} ORDER BY 1")


def _answered(trial: Trial, query: str) -> None:
    trial.sql(f"EXPLAIN {query}")
    trial.sql(query)
    if query.startswith("CREATE"):
        trial.sql("DROP TABLE made")
