"""Large states that the engine takes over without a copy give the same bits as copies of them."""

from __future__ import annotations

import pytest

import nets
from trial import Trial, blobs, cancelled, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

FEATURES, EPOCHS = 64, 3
ADAM = "loss='categorical_crossentropy',optimizer='Adam(learning_rate={})',metrics=['accuracy']"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(60, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed", buffer_size=17)
    trial.pack_validation("blobs", "held_out", "packed")
    # With what Adam keeps, 20 MB.
    trial.model(nets.mlp(FEATURES, units=25_000))
    params = [ADAM.format(rate) for rate in (0.001, 0.0005)]
    trial.select("mst", [1], params, ["batch_size=8,epochs=1,anneal_at=[2]"])


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_measuring_stopping_and_sharing_visits_change_no_bit(trial: Trial, backend: str) -> None:
    options = {"backend": backend, "fuse": "off"}
    run_id = trial.fit("packed", f"plain_{backend}", "mst", EPOCHS, options=options)
    assert trial.value("SELECT min(state_bytes) FROM cerebro.visits WHERE run_id = %s", run_id) > 16 * 2**20
    measured = {"validation_table": "held_out", "metrics_compute_frequency": 1}
    with cancelled(trial, 5):
        trial.fit("packed", f"measured_{backend}", "mst", EPOCHS, options=options, **measured)
    trial.sql("SELECT cerebro.resume(%s)", trial.value("SELECT max(run_id) FROM cerebro._run"))
    shared = {**options, "fuse": "exact"}
    trial.fit("packed", f"shared_{backend}", "mst", EPOCHS, options=shared, **measured)
    expected = trial.weights(f"plain_{backend}")
    assert trial.weights(f"measured_{backend}") == trial.weights(f"shared_{backend}") == expected
