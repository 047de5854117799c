"""The starting points `realmlp` and `tabm`: interrupted, killed, fused, and for groups of a quantity."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from fixtures import Connect
from segments import kill_a_visit
from trial import Trial, cancelled

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

EPOCHS = 4
LEARN = "loss='mse',metrics=['mae'],optimizer='Adam(learning_rate={})'"
SMALL = json.dumps({"width": 16, "depth": 1, "target_scale": "standard"})


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    """Make bills in two units, one of each shop, and nets that answer in the unit of the table."""
    trial.sql(
        "CREATE TABLE bills AS SELECT i AS id, i % 2 AS shop, sin(i)::float8 AS a, cos(i * 1.7)::float8 AS b,"
        " chr(97 + i % 3) AS plan, (7 + 2 * sin(i) + i % 3) * CASE i % 2 WHEN 0 THEN 1 ELSE 1000 END AS bill"
        " FROM generate_series(1, 500) AS i"
    )
    options = {"columns": "auto", "exclude": ["id"]}
    trial.pack("bills", "packed", "bill", "*", options=options)
    trial.pack("bills", "by_shop", "bill", "*", options={**options, "group_by": ["shop"]})
    for packed, arch in (("packed", "nets"), ("by_shop", "nets_of_shops")):
        for name in ("realmlp", "tabm"):
            trial.sql("SELECT cerebro.load_net(%s, %s, %s, %s)", arch, packed, name, SMALL)
        compiled = [LEARN.format(rate) for rate in (0.01, 0.02)]
        trial.select(f"{arch}_mst", [1, 2], compiled, ["batch_size=16"], arch=arch)


@pytest.fixture(scope="module")
def undisturbed(trial: Trial, tables: None) -> dict[int, bytes]:
    trial.fit("packed", "undisturbed", "nets_mst", EPOCHS)
    return trial.weights("undisturbed")


def test_a_run_that_is_canceled_is_resumed(trial: Trial, undisturbed: dict[int, bytes]) -> None:
    with cancelled(trial, at_visits=9):
        trial.fit("packed", "resumed", "nets_mst", EPOCHS)
    trial.sql("SELECT cerebro.resume(%s)", trial.value("SELECT max(run_id) FROM cerebro.runs"))
    assert trial.weights("resumed") == undisturbed


def test_a_visit_that_is_killed_is_made_again(
    trial: Trial, connect: Connect, undisturbed: dict[int, bytes]
) -> None:
    other = connect()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(trial.fit, "packed", "killed", "nets_mst", EPOCHS)
        assert kill_a_visit(other, run)
        run.result(timeout=200)
    assert trial.weights("killed") == undisturbed


def test_models_of_folds_are_resumed_to_the_same_bits(trial: Trial) -> None:
    options = {"columns": "auto", "exclude": ["id"], "folds": 2}
    trial.pack("bills", "in_folds", "bill", "*", options=options)
    crossed = {"cross_validate": {"models": True}}
    trial.fit("in_folds", "folded", "nets_mst", 2, options=crossed)
    with cancelled(trial, at_visits=9):
        trial.fit("in_folds", "folded_resumed", "nets_mst", 2, options=crossed)
    trial.sql("SELECT cerebro.resume(%s)", trial.value("SELECT max(run_id) FROM cerebro.runs"))
    models = trial.weights("folded")
    assert len(models) == 8 and trial.weights("folded_resumed") == models


def test_one_session_comes_to_the_same_bits(trial: Trial, undisturbed: dict[int, bytes]) -> None:
    trial.sql("BEGIN ISOLATION LEVEL REPEATABLE READ")
    try:
        trial.fit("packed", "alone", "nets_mst", EPOCHS)
    finally:
        trial.sql("COMMIT")
    assert trial.weights("alone") == undisturbed


def test_configs_that_share_visits_come_to_the_same_bits(trial: Trial) -> None:
    compiled = [LEARN.format(rate) for rate in (0.001, 0.003, 0.01, 0.02)]
    trial.select("many_mst", [1, 2], compiled, ["batch_size=16"], arch="nets")
    found = []
    for fuse in ("off", "exact"):
        run = trial.fit("packed", f"jax_{fuse}", "many_mst", 2, options={"backend": "jax", "fuse": fuse})
        assert (trial.count_shared(run) > 0) is (fuse == "exact")
        found.append(trial.weights(f"jax_{fuse}"))
    assert found[0] == found[1]


def test_each_group_answers_in_the_unit_of_the_table(trial: Trial) -> None:
    trial.fit("by_shop", "of_shops", "nets_of_shops_mst", 40)
    trial.call("madlib_predict", "of_shops", "bills", "id", "*", "told")
    explained = trial.sql(
        "SELECT 1 - sum((prediction - bill)^2) / sum((mean - bill)^2) FROM told JOIN bills USING (id)"
        " JOIN (SELECT shop, avg(bill) AS mean FROM bills GROUP BY shop) AS m USING (shop) GROUP BY shop"
        " ORDER BY shop"
    )
    # The scale is that of all shops together, so the small bills are learned less well.
    assert explained[1][0] > 0.9 and len(explained) == 2
