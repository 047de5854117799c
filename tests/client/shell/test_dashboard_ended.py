"""What the live page offers for a run that is over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

import nets
from fixtures import Sql
from shell import Page, dashboard
from trial import SGD, Trial, blobs, rows_of

FEATURES = 6


@pytest.fixture(scope="module")
def run(database: str) -> int:
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql("INSERT INTO cerebro.settings VALUES ('backend', 'jax'), ('segments', '2')")
        trial.table("blobs", "x real[], y integer", rows_of(*blobs(60, features=FEATURES)))
        trial.pack("blobs", "packed")
        trial.model(nets.mlp(FEATURES))
        trial.select("configs", [1], [SGD], ["batch_size=10"])
        return trial.fit("packed", "models", "configs", 1, name="<b>first</b>")


@pytest.fixture(scope="module")
def page(database: str, run: int) -> Iterator[Page]:
    with dashboard(database) as served:
        yield served


def test_the_report_of_a_run_is_a_file(page: Page, run: int) -> None:
    status, headers, text = page.ask(f"/api/runs/{run}/report")
    assert status == 200, text
    named = {name.lower(): value for name, value in headers.items()}
    assert named["content-disposition"] == f'attachment; filename="run-{run}.html"'
    assert "Leaderboard" in text and "<b>first</b>" not in text
    assert page.ask("/api/runs/999999/report")[0] == 404


def test_a_run_that_is_over_goes_on_as_another(page: Page, run: int, sql: Sql) -> None:
    path, given = f"/api/runs/{run}/go_on", {"epochs": 2}
    status, _, text = page.ask(path, method="POST", body={"preview": True, "with": given})
    assert status == 200, text
    found = json.loads(text)
    assert "2 more epochs, from where run" in found["says"] and "warm_start => TRUE" in found["sql"]
    status, _, text = page.ask(path, method="POST", body={"with": given})
    assert status == 200, text
    ((newest,),) = sql("SELECT max(run_id) FROM cerebro.runs")
    assert newest > run and sql("SELECT cerebro.wait(%s)", newest) == [("finished",)]
    assert sql("SELECT run_id FROM models_summary") == [(newest,)]
    # Its tables are another run's now.
    status, _, text = page.ask(path, method="POST", body={"preview": True, "with": given})
    assert status == 400 and "has left no table" in text
    sql("SELECT cerebro.forget(%s)", newest)
