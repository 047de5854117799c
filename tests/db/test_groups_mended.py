"""On a resume, a group whose state is damaged or whose metrics are gone is trained from the beginning."""

from __future__ import annotations

import pytest

from trial import ADAM, Trial, blobs, cancelled, rows_of

JAX = {"backend": "jax", "checkpoint_every": 1}

# On Greenplum states and metrics of groups are at the segments' own servers.
pytestmark = [pytest.mark.postgresql, pytest.mark.fresh_caller]


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(120)))
    trial.sql("CREATE TABLE sales AS SELECT *, CASE WHEN y = 0 THEN 'a' ELSE 'b' END AS shop FROM blobs")
    trial.pack("sales", "packed", options={"group_by": ["shop"]})
    trial.call("load_net", "arch", "packed", "Dense(6, activation='relu')")
    trial.select("configs", [1], [ADAM], ["batch_size=10"])


@pytest.mark.parametrize(
    ("hurt", "table"),
    [
        pytest.param(
            "UPDATE cerebro._state SET data = overlay(data PLACING '\\x0000' FROM 200) WHERE run_id = %s",
            "states",
            marks=pytest.mark.slow,
        ),
        ("DELETE FROM cerebro._metric WHERE run_id = %s AND epoch = 1", "metrics"),
    ],
)
def test_what_is_damaged_is_made_again(trial: Trial, hurt: str, table: str) -> None:
    trial.fit("packed", f"{table}_whole", "configs", 4, options=JAX, metrics_compute_frequency=1)
    with cancelled(trial, 8):
        trial.fit("packed", f"{table}_hurt", "configs", 4, options=JAX, metrics_compute_frequency=1)
    run = trial.value("SELECT max(run_id) FROM cerebro._run")
    trial.sql(hurt, run)
    trial.sql("SELECT cerebro.resume(%s)", run)
    models = "SELECT shop, model_weights FROM {} ORDER BY shop"
    found, wanted = (
        [(shop, bytes(data)) for shop, data in trial.sql(models.format(f"{table}_{name}"))]
        for name in ("hurt", "whole")
    )
    assert found == wanted
    count = "SELECT count(*) FROM cerebro.metrics JOIN {} USING (run_id)"
    assert trial.value(count.format(f"{table}_hurt_summary")) == trial.value(
        count.format(f"{table}_whole_summary")
    )
