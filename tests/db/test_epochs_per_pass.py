"""Option `epochs_per_pass`: an epoch trains on a part of the rows, so that configs are compared early."""

from __future__ import annotations

import json
import statistics

import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

EPOCHS = 4
PARTS = {"epochs_per_pass": 3}


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer, shop integer", [(*row, 1) for row in rows_of(*blobs(240))])
    trial.pack("blobs", "packed", buffer_size=37)
    model = trial.model(nets.mlp())
    trial.select("mst", [model], [ADAM, SGD], ["batch_size=16,epochs=1"])


def test_an_epoch_trains_on_its_part_of_each_segment(trial: Trial) -> None:
    run = trial.fit("packed", "in_parts", "mst", EPOCHS, options=PARTS)
    found = trial.sql("SELECT DISTINCT rows FROM cerebro.visits WHERE run_id = %s", run)
    assert found == [(40,)]
    losses = trial.sql(
        "SELECT count(DISTINCT loss) FROM cerebro.visits WHERE run_id = %s GROUP BY mst_key", run
    )
    assert losses == [(2 * EPOCHS,)] * 2


@pytest.mark.slow
def test_configs_that_share_visits_come_to_the_same_bits(trial: Trial) -> None:
    found = []
    for fuse in ("off", "exact"):
        trial.fit("packed", f"jax_{fuse}", "mst", 2, options={**PARTS, "backend": "jax", "fuse": fuse})
        found.append(trial.weights(f"jax_{fuse}"))
    assert found[0] == found[1]


def test_rows_are_measured_in_the_same_part_each_time(trial: Trial) -> None:
    """A net that does not learn has the same loss after each epoch, so the measured rows are the same."""
    still = trial.model(nets.mlp())
    trial.select("still", [still], [SGD.replace("0.1", "1e-30")], ["batch_size=16,epochs=1"])
    run = trial.fit("packed", "unmoved", "still", 3, metrics_compute_frequency=1, options=PARTS)
    values = trial.sql(
        "SELECT count(*), count(DISTINCT value) FROM cerebro.metrics WHERE run_id = %s AND metric = 'loss'",
        run,
    )
    assert values == [(3, 1)]


def test_later_plans_know_that_a_part_was_measured(trial: Trial) -> None:
    """An evaluation of 128 rows is one batch, although the segment has 8 of them."""
    trial.table("often", "x real[], y integer", rows_of(*blobs(4096)))
    trial.pack("often", "often_packed")
    trial.select("alone", [1], [ADAM], ["batch_size=16,epochs=1"])
    run = trial.fit("often_packed", "sixteenths", "alone", 6, options={"epochs_per_pass": 16})
    rate = trial.value("SELECT evaluation_seconds FROM cerebro._rate WHERE run_id = %s", run)
    least = trial.sql("SELECT min(seconds) FROM cerebro._evaluation WHERE run_id = %s GROUP BY segment", run)
    assert rate == pytest.approx(statistics.median(seconds for (seconds,) in least))


def test_groups_take_no_parts(trial: Trial) -> None:
    trial.pack("blobs", "by_shop", options={"group_by": ["shop"]})
    with pytest.raises(psycopg2.Error, match="takes no option epochs_per_pass yet"):
        trial.fit("by_shop", "none", "mst", 1, options=PARTS)


def test_a_large_table_is_learned_in_parts_with_large_batches(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE large AS SELECT sin(i)::real AS x, CASE WHEN sin(i) > 0 THEN 'up' ELSE 'down' END AS y"
        " FROM generate_series(1, 100000) i"
    )
    options = {"configs": 1, "epochs": 8, "nets": ["linear"], "single": True, "segments": 2}
    ((metric,), _) = trial.sql(
        "SELECT value FROM cerebro.train('large', 'y', 'many', '1 min', %s)", json.dumps(options)
    )
    said = trial.notices()
    assert '"epochs_per_pass": 2' in said
    assert "'batch_size': [256, 1024]" in said
    assert metric > 0.9
    ((least, most),) = trial.sql(
        "SELECT min(rows), max(rows) FROM cerebro.visits WHERE run_id = cerebro.last_run()"
    )
    assert least == most == 20_000
