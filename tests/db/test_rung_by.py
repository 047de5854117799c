"""Option `rung_by` of searches: configs are compared on parts of the rows first, and then on all rows."""

from __future__ import annotations

import json
from typing import Any

import psycopg2
import pytest

import nets
from trial import Trial, blobs, cancelled, rows_of

pytestmark = pytest.mark.fresh_caller

COMPILE = """{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
    'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.001, 0.5, 'log']}]}"""
FIT = "{'batch_size': [8]}"
BY_ROWS = {"rung_by": "rows"}
QUARTERS = {**BY_ROWS, "epochs_per_pass": 4}
SEGMENT_ROWS = 128


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    rows = [(*row, 1) for row in rows_of(*blobs(2 * SEGMENT_ROWS))]
    trial.table("source", "x real[], y integer, shop integer", rows)
    trial.table("held", "x real[], y integer", rows_of(*blobs(60, seed=1)))
    trial.pack("source", "packed", buffer_size=8)
    trial.pack("source", "coarse", buffer_size=40)
    trial.pack_validation("held", "packed_val", "packed")
    trial.model(nets.mlp())


def search(trial: Trial, out: str, method: str, params: str, packed: str = "packed", **more: Any) -> int:
    """Run a search into the table `out`, and return the run_id."""
    named = {"random_state": 5, "validation_table": "packed_val", **more}
    named["options"] = {"threads": 1, **named.get("options", BY_ROWS)}
    arguments = (packed, out, "arch", f"{out}_best", [1], COMPILE, FIT, method, params)
    trial.notices()
    trial.call("madlib_keras_automl", *arguments, **named)
    return trial.value(f"SELECT run_id FROM {out}_summary")


def rows_trained(trial: Trial, run: int) -> dict[int, list[int]]:
    """Return, for each config, how many rows it was trained on in each segment, each pass counted anew."""
    found: dict[int, list[int]] = {}
    for key, rows in trial.sql(
        "SELECT mst_key, sum(rows)::integer FROM cerebro.visits WHERE run_id = %s"
        " GROUP BY mst_key, segment ORDER BY mst_key, segment",
        run,
    ):
        found.setdefault(key, []).append(rows)
    return found


def decisions(trial: Trial, run: int) -> list[tuple[Any, ...]]:
    return trial.sql(
        "SELECT mst_key, decision, epochs, reason FROM cerebro.decisions WHERE run_id = %s"
        " ORDER BY mst_key, number",
        run,
    )


def test_the_first_rungs_of_hyperband_have_a_part_of_the_rows_and_survivors_all(trial: Trial) -> None:
    options = json.dumps({**BY_ROWS, "threads": 1})
    plan = trial.value(
        "SELECT cerebro.explain_automl('packed', 'arch', ARRAY[1], %s, %s, 'hyperband', 'R=1',"
        " options => %s, format => 'json')",
        COMPILE, FIT, options,
    )  # fmt: skip
    # By epochs, each visit is to all rows.
    whole = trial.value(
        "SELECT cerebro.explain_automl('packed', 'arch', ARRAY[1], %s, %s, 'hyperband', 'R=16',"
        " options => %s, format => 'json')",
        COMPILE, FIT, json.dumps({"threads": 1}),
    )  # fmt: skip
    plans = [json.loads(text)[0]["Plan"] for text in (plan, whole)]
    by_rows, by_epochs = (
        sum(node.get("Training Time", 0) for node in plan["Plans"]) / plan["Visits"] for plan in plans
    )
    assert by_rows < by_epochs / 6
    run = search(trial, "banded", "hyperband", "R=1")
    assert "that is how many buffers" not in trial.notices()
    found = rows_trained(trial, run)
    # Of 16 configs, four get a quarter of the rows and one all; one of four from a quarter on; three at once.
    part = SEGMENT_ROWS // 16
    assert sorted(found.values()) == [[part] * 2] * 12 + [[4 * part] * 2] * 6 + [[16 * part] * 2] * 5
    counted = trial.sql("SELECT DISTINCT rows FROM cerebro.visits WHERE run_id = %s", run)
    assert counted == [(part,)]
    survivors = [key for key, rows in found.items() if rows == [SEGMENT_ROWS] * 2]
    rungs = trial.sql("SELECT mst_key, metrics_iters FROM banded_info WHERE s = 2 AND i = 2")
    assert [epochs for _, epochs in rungs] == [[1, 4, 16]] and rungs[0][0] in survivors
    visits = trial.value("SELECT count(*) FROM cerebro.visits WHERE run_id = %s", run)
    assert json.loads(plan)[0]["Plan"]["Visits"] == visits
    assert trial.value("SELECT automl_params FROM banded_summary") == "R=1, eta=4, skip_last=0"


def test_asha_counts_passes_and_begins_with_a_part(trial: Trial) -> None:
    run = search(trial, "halved", "asha", "num_configs=9, num_iterations=2", options=QUARTERS)
    found = rows_trained(trial, run)
    assert {tuple(rows) for rows in found.values()} == {(32, 32), (128, 128), (256, 256)}
    assert trial.sql("SELECT DISTINCT rows FROM cerebro.visits WHERE run_id = %s", run) == [(32,)]
    longest = trial.sql("SELECT DISTINCT metrics_iters FROM halved_info WHERE status = 'finished'")
    assert longest == [([1, 4, 8],)]
    assert trial.value("SELECT epochs FROM cerebro.runs WHERE run_id = %s", run) == 8
    replayed = {**QUARTERS, "replay": run}
    search(trial, "halved_again", "asha", "num_configs=9, num_iterations=2", options=replayed)
    assert trial.weights("halved_again") == trial.weights("halved")
    # By epochs, or in other parts, the search is another.
    for other in ({"epochs_per_pass": 8}, {"rung_by": "epochs"}):
        with pytest.raises(psycopg2.Error, match="cannot be replayed by this call"):
            options = {**replayed, **other}
            search(trial, "none", "asha", "num_configs=9, num_iterations=2", options=options)


def test_the_same_seed_makes_the_same_decisions_and_bits(trial: Trial) -> None:
    first, again = (search(trial, out, "hyperband", "R=1", options=QUARTERS) for out in ("one", "two"))
    assert decisions(trial, first) == decisions(trial, again)
    assert trial.weights("one") == trial.weights("two")


def test_a_search_that_was_cancelled_goes_on_to_the_same_bits(trial: Trial) -> None:
    whole = search(trial, "whole", "hyperband", "R=1", options=QUARTERS)
    with cancelled(trial, 14):
        search(trial, "broken", "hyperband", "R=1", options=QUARTERS)
    run = trial.value("SELECT cerebro.last_run()")
    assert trial.value("SELECT count(*) FROM cerebro.visits WHERE run_id = %s", run) < 30
    trial.sql("SELECT cerebro.resume(%s)", run)
    assert trial.weights("broken") == trial.weights("whole")
    assert decisions(trial, run) == decisions(trial, whole)
    assert rows_trained(trial, run) == rows_trained(trial, whole)


def test_a_part_is_no_smaller_than_a_buffer(trial: Trial) -> None:
    search(trial, "coarsely", "asha", "num_configs=2, num_iterations=1", "coarse", validation_table=None)
    fewest = trial.value(
        "SELECT min(buffers) FROM (SELECT count(*) AS buffers FROM coarse GROUP BY __dist_key__) AS b"
    )
    assert f"a pass has {fewest} parts, not 16: that is how many buffers a segment has" in trial.notices()
    iterations = trial.value("SELECT max(metrics_iters) FROM coarsely_info")
    assert iterations[0] == 1 and iterations[-1] == fewest > 1


def test_many_validation_rows_are_sampled_and_chance_is_said(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE many AS SELECT array_fill(random()::real, ARRAY[64]) AS x, i % 3 AS y"
        " FROM generate_series(1, 60000) AS i"
    )
    trial.pack_validation("many", "many_val", "packed")
    search(trial, "sampled", "asha", "num_configs=2, num_iterations=1", validation_table="many_val")
    told = trial.notices()
    assert "configs are compared on 50000 of 60000 validation rows, the same for all" in told
    assert "an accuracy on these is within 0.0018 of that on all rows" in told
    (accuracy,) = trial.sql("SELECT validation_metrics_final FROM sampled_info LIMIT 1")[0]
    assert abs(accuracy * 50_000 - round(accuracy * 50_000)) < 0.01


def test_by_epochs_is_the_usual_search(trial: Trial) -> None:
    runs = [
        search(trial, out, "hyperband", "R=3", options=options)
        for out, options in (("usual", {}), ("by_epochs", {"rung_by": "epochs"}))
    ]
    assert trial.weights("usual") == trial.weights("by_epochs")
    assert rows_trained(trial, runs[0]) == rows_trained(trial, runs[1])


@pytest.mark.parametrize(
    ("method", "options", "text"),
    [
        ("hyperopt", BY_ROWS, "hyperopt has no rungs, so option rung_by cannot be rows"),
        ("median", BY_ROWS, "median has no rungs"),
        ("tpe", BY_ROWS, "tpe has no rungs"),
        ("pbt", BY_ROWS, "pbt has no rungs"),
        ("asha", {"rung_by": "buffers"}, "option rung_by is buffers"),
        ("asha", {"rung_by": 16}, "option rung_by is 16(.|\n)*one of rows, epochs"),
        ("asha", {**BY_ROWS, "epochs_per_pass": 1_000_000}, "option epochs_per_pass is 1000000"),
    ],
)
def test_faults_come_before_any_work(trial: Trial, method: str, options: dict[str, Any], text: str) -> None:
    runs = trial.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.Error, match=text):
        search(trial, "faulty", method, "", options=options)
    assert trial.value("SELECT count(*) FROM cerebro.runs") == runs


def test_neither_groups_nor_fits_take_it(trial: Trial) -> None:
    trial.pack("source", "by_shop", options={"group_by": ["shop"]})
    with pytest.raises(psycopg2.Error, match="a run of groups takes no option rung_by yet"):
        search(trial, "grouped", "asha", "", "by_shop", validation_table=None)
    trial.select("mst", [1], ["loss='categorical_crossentropy',optimizer='SGD(lr=0.1)'"], ["batch_size=8"])
    with pytest.raises(psycopg2.Error, match="unknown option rung_by"):
        trial.fit("packed", "fitted", "mst", 1, options=BY_ROWS)
