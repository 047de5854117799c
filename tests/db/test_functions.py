"""Registered functions: losses, metrics and layers of a superuser's, in every call that may name them."""

from __future__ import annotations

import pytest

import nets
from trial import Trial, blobs, rows_of

FEATURES = 12
LOSS = """
from keras import ops

def my_loss(y_true, y_pred, scale=1.0):
    return ops.mean(ops.square(y_true - y_pred), axis=-1) * scale
"""
OTHER = LOSS.replace("scale=1.0", "scale=2.0")
MINE = "optimizer='SGD(lr=0.1)',loss='my_loss',metrics=['accuracy']"
SGD = "optimizer='SGD(lr=0.1)',loss='mse',metrics=['accuracy']"
FITTED = "batch_size=16,epochs=1"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(120, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed", buffer_size=25)
    trial.model(nets.mlp(FEATURES))


def register(trial: Trial, name: str, source: str, kind: str = "loss", **more: object) -> int:
    named = "".join(f", {key} => %s" for key in more)
    return trial.value(
        f"SELECT cerebro.register_function(%s, %s, %s{named})", name, source, kind, *more.values()
    )


def undo(trial: Trial, run_id: int, after: int) -> None:
    """Take a run back to where its configs had so many visits behind them."""
    for table in ("_visit", "_state"):
        trial.sql(f"DELETE FROM cerebro.{table} WHERE run_id = %s AND step > %s", run_id, after)
    for table in ("_metric", "_evaluation"):
        trial.sql(f"DELETE FROM cerebro.{table} WHERE run_id = %s", run_id)


def unfinished(trial: Trial, out: str, mst: str, epochs: int, backend: str, after: int) -> int:
    """A run that lost its tables and some of its visits; gives its number."""
    trial.sql("BEGIN")
    run_id = trial.fit("packed", out, mst, epochs, options={"backend": backend})
    trial.sql("ROLLBACK")
    undo(trial, run_id, after)
    return run_id


@pytest.fixture(scope="module")
def mine(trial: Trial, tables: None) -> str:
    """A selection table of one config with a registered loss, whose source is that of Keras' mse."""
    assert register(trial, "my_loss", LOSS) == 1
    trial.select("mine", [1], [MINE], [FITTED])
    trial.select("theirs", [1], [SGD], [FITTED])
    return "mine"


@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_a_registered_loss_trains_to_the_bits_of_keras_own(trial: Trial, mine: str, backend: str) -> None:
    trial.fit("packed", f"own_{backend}", mine, 2, options={"backend": backend})
    trial.fit("packed", f"keras_{backend}", "theirs", 2, options={"backend": backend})
    assert trial.weights(f"own_{backend}") == trial.weights(f"keras_{backend}")
    facts = [trial.one(f"SELECT * FROM {out}_{backend}_info") for out in ("own", "keras")]
    assert facts[0]["training_loss"] == facts[1]["training_loss"]
    assert [fact["loss_type"] for fact in facts] == ["my_loss", "mse"]
    assert facts[0]["compile_params"] == MINE


def test_a_run_keeps_its_version_until_its_end(trial: Trial, mine: str) -> None:
    """Resumed after the function was changed, it comes to the same; a new run comes to something else."""
    trial.fit("packed", "whole", mine, 2, options={"backend": "jax"})
    run_id = unfinished(trial, "kept", mine, 2, "jax", 1)
    assert register(trial, "my_loss", OTHER) == 2
    trial.sql("SELECT cerebro.resume(%s)", run_id)
    assert trial.weights("kept") == trial.weights("whole")
    trial.fit("packed", "newer", mine, 2, options={"backend": "jax"})
    assert trial.weights("newer") != trial.weights("whole")
    assert register(trial, "my_loss", LOSS) == 3
