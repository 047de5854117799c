"""Low-rank adapters (LoRA): the states that hop are small, and the bits are those of Keras' own fit."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import pytest

import nets
import reference
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

EPOCHS, SEGMENTS, SEED = 2, 2, 7
LOSS = "categorical_crossentropy"
OPTIMIZERS = {1: ["Adam", {"learning_rate": 0.01}], 2: ["SGD", {"learning_rate": 0.1}]}


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(240)))
    trial.pack("blobs", "packed", buffer_size=37)
    trial.model(nets.encoder())
    trial.select("first", [1], [ADAM], ["batch_size=32,epochs=1"])
    trial.fit("packed", "trained", "first", 1)
    trial.call("load_keras_model", "arch", nets.encoder(), trial.weights("trained")[1])
    # Start from trained weights; attention kernels get adapters, and the last layer trains as a whole.
    made = "SELECT cerebro.enable_lora('arch', 2, %s, ARRAY['query_*', 'value_*', 'wide_*'])"
    assert trial.value(made, 2) == 3
    trial.select("adapters", [3], [ADAM, SGD], ["batch_size=32,epochs=1"])


@pytest.fixture(scope="module")
def done(trial: Trial, tables: None) -> int:
    return trial.fit("packed", "adapted", "adapters", EPOCHS, options={"backend": "tensorflow"})


def plain_keras(trial: Trial, backend: str, keys: Sequence[int]) -> reference.Found:
    rows: dict[str, Any] = {}
    counts = Counter()
    for segment, x, y in trial.buffers("packed"):
        rows |= {f"x_{segment}_{counts[segment]}": x, f"y_{segment}_{counts[segment]}": y}
        counts[segment] += 1
    text, weights = trial.sql("SELECT model_arch::text, model_weights FROM arch WHERE model_id = 3")[0]
    given = np.frombuffer(bytes(weights), "<f4").tolist()
    configs = [reference.Config(key, text, OPTIMIZERS[key], LOSS, 32, weights=given) for key in keys]
    job = reference.Job(backend, SEED, EPOCHS, [counts[s] for s in range(SEGMENTS)], configs)
    with tempfile.TemporaryDirectory() as folder:
        return reference.run(job, rows, Path(folder))


@pytest.mark.tensorflow
def test_the_weights_are_those_of_keras_own_fit(trial: Trial, done: int) -> None:
    assert trial.weights("adapted") == plain_keras(trial, "tensorflow", [1, 2]).weights


def test_the_weights_are_those_of_keras_own_fit_on_jax(trial: Trial) -> None:
    trial.keep("on_jax", "adapters", [1])
    trial.fit("packed", "adapted_jax", "on_jax", EPOCHS, options={"backend": "jax"})
    assert trial.weights("adapted_jax") == plain_keras(trial, "jax", [1]).weights


@pytest.mark.postgresql
def test_what_hops_is_small(trial: Trial, done: int) -> None:
    full = trial.value("SELECT max(state_bytes) FROM cerebro.visits WHERE run_id <> %s", done)
    ours = trial.value("SELECT max(state_bytes) FROM cerebro.visits WHERE run_id = %s", done)
    assert ours < full / 5
    digests = "SELECT count(DISTINCT digest) FROM cerebro._frozen WHERE run_id = %s"
    assert trial.value(digests, done) == 1


def test_all_else_is_as_it_was(trial: Trial, done: int) -> None:
    before = np.frombuffer(bytes(trial.value("SELECT model_weights FROM arch WHERE model_id = 2")), "<f4")
    state = trial.sql("SELECT name, kind, data FROM cerebro.config_state(%s, 1)", done)
    base = [(n, bytes(d)) for n, kind, d in state if kind == "weight" and "lora_" not in n]
    start, moved = 0, set()
    for name, data in base:
        size = len(data) // 4
        if before[start : start + size].tobytes() != data:
            moved.add(name.removeprefix("net/"))
        start += size
    biases = {f"{layer}_{number}/bias" for layer in ("query", "value", "wide") for number in (0, 1)}
    assert moved == {"kind/kernel", "kind/bias", *biases}


def test_predictions_are_those_that_were_measured(trial: Trial, done: int) -> None:
    value = trial.value(
        "SELECT value FROM cerebro.metrics WHERE run_id = %s AND mst_key = 1 AND metric = 'accuracy'"
        " AND dataset = 'training' ORDER BY epoch DESC LIMIT 1",
        done,
    )
    right = [found == str(y) for _, y, found, _ in trial.predicted("adapted", "blobs")]
    assert np.mean(right) == pytest.approx(value, abs=1e-6)


def test_a_net_with_adapters_and_base_weights_predicts_as_the_base(trial: Trial) -> None:
    found = "SELECT cerebro.enable_lora('arch', 1, 4)"
    trial.notices()
    assert trial.value(found) == 4
    assert "has no weights" in trial.notices()


@pytest.mark.parametrize(
    "call, code, message",
    [
        ("'arch', 9, 2", "22023", "not found in table"),
        ("'arch', NULL, 2", "22004", "model_id is NULL"),
        ("'arch', 2, 0", "22023", "lora_rank is 0"),
        ("'arch', 2, 2, ARRAY['nobody']", "22023", 'layers names "nobody"'),
        ("'arch', 2, 2, ARRAY[NULL]", "22004", "layers holds NULL"),
        ("'arch', 2, 2, NULL, ARRAY['mea']", "22023", 'train names "mea"'),
        ("'nowhere', 2, 2", "42P01", "nowhere"),
    ],
)
def test_what_cannot_be_is_refused(trial: Trial, call: str, code: str, message: str) -> None:
    before = trial.value("SELECT count(*) FROM arch")
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql(f"SELECT cerebro.enable_lora({call})")
    assert (caught.value.pgcode, message in str(caught.value)) == (code, True), caught.value
    assert trial.value("SELECT count(*) FROM arch") == before


@pytest.mark.postgresql
def test_a_grid_of_adapters_hops_less_than_a_twentieth(trial: Trial) -> None:
    """Eight configs of a transformer with adapters hop at most 5 % of the bytes of eight without."""
    whole = trial.model(nets.encoder(128, 4), weights=None)
    made = "SELECT cerebro.enable_lora('arch', %s, %s, ARRAY['query_*', 'value_*'])"
    adapters = [trial.value(made, whole, rank) for rank in (2, 4)]
    compiles = [ADAM.replace("0.01", rate) for rate in ("0.01", "0.003", "0.001", "0.0003")]
    trial.select("eight_adapters", adapters, compiles, ["batch_size=64,epochs=1"])
    trial.select("eight_whole", [whole], compiles, ["batch_size=64,epochs=1", "batch_size=32,epochs=1"])
    hopped = []
    for selection in ("eight_adapters", "eight_whole"):
        run = trial.fit("packed", f"of_{selection}", selection, 1, options={"backend": "jax"})
        sizes = trial.read_row("SELECT * FROM cerebro.sizes WHERE run_id = %s", run)
        assert sizes["visits"] == 8 * SEGMENTS
        hopped.append(sizes["hopped_bytes"])
    print(f"hopped bytes: adapters {hopped[0]}, whole {hopped[1]}, ratio {hopped[0] / hopped[1]:.4f}")
    assert hopped[0] <= 0.05 * hopped[1]
