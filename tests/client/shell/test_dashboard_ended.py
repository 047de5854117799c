"""The live page of a finished run: report, confusion matrix, predictions, comparison, and training on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

import psycopg2
import pytest

import nets
from fixtures import MakeRole, Sql
from shell import Page, dashboard
from trial import SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.slow

FEATURES, ROWS = 6, 60
END_DRIVER = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'cerebro drive%%'"""


@pytest.fixture(scope="module")
def run(database: str) -> int:
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql("INSERT INTO cerebro.settings VALUES ('backend', 'jax'), ('segments', '2')")
        trial.table("blobs", "x real[], y integer", rows_of(*blobs(ROWS, features=FEATURES)))
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


def content(answer: tuple[int, dict[str, str], str]) -> Any:
    assert answer[0] == 200, answer
    return json.loads(answer[2])


def test_a_confusion_matrix_counts_what_is_predicted(page: Page, run: int, sql: Sql) -> None:
    found = content(page.ask(f"/api/runs/{run}/configs/1/confusion"))
    sql("DROP TABLE IF EXISTS told")
    sql("ALTER TABLE blobs ADD COLUMN IF NOT EXISTS id serial")
    sql("SELECT cerebro.madlib_predict('models', 'blobs', 'id', 'x', 'told', 'response', mst_key => 1)")
    expected = sql(
        "SELECT y::text, class_value::text, count(*) FROM blobs JOIN told USING (id)"
        " GROUP BY 1, 2 ORDER BY 1, 2"
    )
    cells = [(cell["label"], cell["predicted"], cell["rows"]) for cell in found["cells"]]
    assert sorted(cells) == expected
    assert (found["of"], found["table"]) == ("training", "public.packed")
    assert page.ask("/api/runs/999999/configs/1/confusion")[0] == 404
    assert page.ask(f"/api/runs/{run}/configs/77/confusion")[0] == 409


def test_a_few_rows_are_predicted(page: Page, run: int, sql: Sql) -> None:
    asked = content(page.ask(f"/api/runs/{run}/suggestion"))
    assert asked == {"table": "public.blobs", "columns": "x"}
    path = f"/api/runs/{run}/configs/1/predictions?"
    found = content(page.ask(path + urlencode({**asked, "rows": 3})))
    assert found["columns"][:2] == ["x", "y"] and found["columns"][-2:] == ["class_value", "prob"]
    assert len(found["rows"]) == 3 and all(0 <= float(row[-1]) <= 1 for row in found["rows"])
    assert sql("SELECT to_regclass('pg_temp.cerebro_shown')") == [(None,)]
    for wrong, said in (
        ({"table": "nowhere"}, "no table nowhere"),
        ({"table": "public.blobs; DROP TABLE blobs"}, "is not the name of a table"),
        ({"columns": "z"}, "z"),
        ({"columns": ""}, "independent_varname"),
        ({"rows": "many"}, "is a number"),
    ):
        status, _, text = page.ask(path + urlencode({**asked, **wrong}))
        assert status in (400, 409) and said in text, (wrong, text)


def test_a_view_of_somebody_elses_is_not_read(page: Page, run: int, sql: Sql, role: MakeRole) -> None:
    """Reading the view would run its owner's functions with the rights of the page's user."""
    sql("CREATE OR REPLACE VIEW trap AS SELECT * FROM blobs")
    sql(f"ALTER VIEW trap OWNER TO {role()}")
    asked = {"table": "public.trap", "columns": "x", "rows": 1}
    status, _, text = page.ask(f"/api/runs/{run}/configs/1/predictions?{urlencode(asked)}")
    assert status == 409 and "somebody else owns it" in text
    sql("DROP VIEW trap")


def test_runs_stand_side_by_side(page: Page, run: int, sql: Sql) -> None:
    sql("SELECT cerebro.madlib_fit_multiple_model('packed', 'second', 'configs', 2)")
    ((second,),) = sql("SELECT run_id FROM second_summary")
    found = content(page.ask(f"/api/compare?runs={run},{second},999999"))["runs"]
    assert [one["run"]["run_id"] for one in found] == [run, second]
    assert [one["best"]["mst_key"] for one in found] == [1, 1]
    assert {row["metric"] for row in found[1]["curves"]} == {"accuracy", "loss"}
    for wrong in ("", "1,", "a,b", ",".join(["1"] * 9), "9" * 30):
        assert page.ask(f"/api/compare?runs={wrong}")[0] == 400
    sql("SELECT cerebro.forget(%s)", second)


def test_sessions_tell_what_they_use(page: Page, run: int) -> None:
    visits = content(page.ask(f"/api/runs/{run}"))["visits"]
    rows = [dict(zip(visits["columns"], row, strict=True)) for row in visits["rows"]]
    assert rows and all(row["cpu_seconds"] > 0 and row["memory_bytes"] > 10 * 2**20 for row in rows)


def test_a_run_that_is_over_goes_on_as_another(page: Page, run: int, sql: Sql) -> None:
    path, given = f"/api/runs/{run}/go_on", {"epochs": 2}
    status, _, text = page.ask(path, method="POST", body={"preview": True, "with": given})
    assert status == 200, text
    found = json.loads(text)
    assert "2 more epochs, from where run" in found["says"] and "warm_start => TRUE" in found["sql"]
    status, _, text = page.ask(path, method="POST", body={"with": given})
    assert status == 200, text
    newest = gone_on(sql, run)
    assert sql("SELECT run_id FROM models_summary") == [(newest,)]
    # The first run's tables now belong to the new run.
    status, _, text = page.ask(path, method="POST", body={"preview": True, "with": given})
    assert status == 400 and "has left no table" in text
    status, _, text = page.ask(f"/api/runs/{run}/configs/1/confusion")
    assert status == 400 and "has the models of another run" in text
    sql("SELECT cerebro.forget(%s)", newest)


def gone_on(sql: Sql, before: int) -> int:
    ((newest,),) = sql("SELECT max(run_id) FROM cerebro.runs")
    assert newest > before and sql("SELECT cerebro.wait(%s)", newest) == [("finished",)]
    return newest


def test_a_single_model_goes_on_too(page: Page, run: int, sql: Sql) -> None:
    sql("SELECT cerebro.madlib_fit('packed', 'alone', 'arch', 1, %s, 'batch_size=10', 2)", SGD)
    ((alone,),) = sql("SELECT run_id FROM alone_summary")
    path, given = f"/api/runs/{alone}/go_on", {"epochs": 1}
    found = content(page.ask(path, method="POST", body={"preview": True, "with": given}))
    assert "trains the model for 1 more epochs" in found["says"] and "madlib_fit('" in found["sql"]
    content(page.ask(path, method="POST", body={"with": given}))
    newest = gone_on(sql, alone)
    assert sql("SELECT run_id, num_iterations FROM alone_summary") == [(newest, 1)]
    found = content(page.ask(f"/api/runs/{newest}/configs/1/confusion"))
    assert sum(cell["rows"] for cell in found["cells"]) == ROWS
    for one in (alone, newest):
        sql("SELECT cerebro.forget(%s)", one)


def test_a_failed_run_is_resumed(page: Page, run: int, sql: Sql) -> None:
    sql(
        "SELECT cerebro.madlib_fit_multiple_model('packed', 'broken', 'configs', 200,"
        " options => '{\"background\": true}')"
    )
    ((number,),) = sql("SELECT cerebro.last_run()")
    seen = "SELECT status, visits_done FROM cerebro.runs WHERE run_id = %s"
    wait_until(sql, seen, number, lambda row: row[1] > 2)
    sql(END_DRIVER)
    wait_until(sql, seen, number, lambda row: row[0] == "interrupted")
    sql("INSERT INTO cerebro._run_event (run_id, event, detail) VALUES (%s, 'failed', 'for a test')", number)
    assert sql(seen, number)[0][0] == "failed"
    content(page.ask(f"/api/runs/{number}/resume", method="POST", body={"with": {}}))
    wait_until(sql, seen, number, lambda row: row[0] != "failed")
    assert sql("SELECT cerebro.wait(%s)", number) == [("finished",)]
    sql("SELECT cerebro.forget(%s)", number)


def wait_until(sql: Sql, query: str, run: int, reached: Any) -> None:
    deadline = time.monotonic() + 60
    while not reached(sql(query, run)[0]):
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.05)
