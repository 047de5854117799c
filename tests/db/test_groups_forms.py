"""A resumed run keeps the batched form for its groups, even if its packed table has outgrown memory."""

from __future__ import annotations

import pytest

import nets
from trial import ADAM, Trial, blobs, cancelled, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.fresh_caller]

FEATURES, ROWS, EPOCHS = 100, 301, 60
OPTIONS = {"backend": "jax", "fuse": "fast", "checkpoint_every": 1, "memory_mb": 16}


def test_a_run_in_the_batched_form_goes_on_in_it_when_its_table_has_outgrown_memory(trial: Trial) -> None:
    trial.table("sales", "x real[], y integer", rows_of(*blobs(ROWS, features=FEATURES)))
    trial.sql("ALTER TABLE sales ADD shop integer; UPDATE sales SET shop = y")
    trial.pack("sales", "packed", options={"group_by": ["shop"]})
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM], ["batch_size=10"])
    trial.fit("packed", "at_once", "configs", EPOCHS, options=OPTIONS)
    with cancelled(trial, 8):
        trial.fit("packed", "again", "configs", EPOCHS, options=OPTIONS)
    trial.sql("CREATE TABLE more AS SELECT x, y, shop FROM sales, generate_series(1, 180)")
    trial.sql("SELECT cerebro.append_rows('packed', 'more')")
    trial.sql("SELECT cerebro.resume(%s)", trial.value("SELECT max(run_id) FROM cerebro.runs"))
    kept = "SELECT shop, mst_key, model_weights FROM {} ORDER BY 1, 2"
    assert trial.sql(kept.format("again")) == trial.sql(kept.format("at_once"))
