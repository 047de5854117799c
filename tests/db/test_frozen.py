"""Frozen layers: their weights are stored once for each run, and states contain only values that change."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import pytest

import nets
import reference
from fixtures import Connect
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

UNITS, EPOCHS, SEGMENTS, SEED = 200, 2, 2, 7
# Enough epochs for a test to interrupt the run.
LONG = 30
LOSS = "categorical_crossentropy"
OPTIMIZERS = {"adam": ["Adam", {"learning_rate": 0.01}], "sgd": ["SGD", {"learning_rate": 0.1}]}
# Frozen layers with a Dropout layer, which still draws numbers, and a layer with moving statistics.
TRUNK = nets.sequential(
    [nets.FEATURES],
    nets.layer("Dense", units=UNITS, activation="relu", trainable=False),
    nets.layer("BatchNormalization", trainable=False),
    nets.layer("Dropout", rate=0.3, trainable=False),
    nets.layer("Dense", units=8, activation="relu"),
    nets.layer("BatchNormalization"),
    nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
)
FROZEN_BYTES = 4 * (nets.FEATURES * UNITS + 5 * UNITS)

# Greenplum stores whole states, so tests of frozen parts do not apply there.
parted = pytest.mark.postgresql


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(240)))
    trial.pack("blobs", "packed", buffer_size=37)
    trial.model(TRUNK)
    trial.select("seeded", [1], [ADAM, SGD], ["batch_size=32,epochs=1", "batch_size=20,epochs=2"])
    weights = np.random.default_rng(5).normal(size=_count(trial), scale=0.1).astype("<f4")
    given = trial.model(TRUNK, weights=abs(weights).tobytes())
    trial.select("given", [given], [ADAM, SGD], ["batch_size=32,epochs=1", "batch_size=20,epochs=2"])


def _count(trial: Trial) -> int:
    trial.select("counted", [1], [SGD], ["batch_size=32,epochs=1"])
    trial.fit("packed", "counting", "counted", 1)
    return len(trial.weights("counting")[1]) // 4


@pytest.fixture(scope="module")
def given_run(trial: Trial, tables: None) -> int:
    return trial.fit("packed", "of_given", "given", EPOCHS)


def plain_keras(trial: Trial, backend: str, keys: Sequence[int]) -> reference.Found:
    rows: dict[str, Any] = {}
    counts = Counter()
    for segment, x, y in trial.buffers("packed"):
        rows |= {f"x_{segment}_{counts[segment]}": x, f"y_{segment}_{counts[segment]}": y}
        counts[segment] += 1
    made = [("adam", 32, 1), ("adam", 20, 2), ("sgd", 32, 1), ("sgd", 20, 2)]
    configs = [
        reference.Config(key, TRUNK, OPTIMIZERS[optimizer], LOSS, batch_size, passes)
        for key, (optimizer, batch_size, passes) in enumerate(made, 1)
        if key in keys
    ]
    job = reference.Job(backend, SEED, EPOCHS, [counts[s] for s in range(SEGMENTS)], configs)
    with tempfile.TemporaryDirectory() as folder:
        return reference.run(job, rows, Path(folder))


@pytest.mark.tensorflow
def test_a_run_equals_plain_keras(trial: Trial) -> None:
    trial.fit("packed", "of_seeds", "seeded", EPOCHS, options={"backend": "tensorflow"})
    assert trial.weights("of_seeds") == plain_keras(trial, "tensorflow", [1, 2, 3, 4]).weights


def test_a_run_on_jax_equals_plain_keras(trial: Trial) -> None:
    trial.keep("two", "seeded", [1, 4])
    trial.fit("packed", "of_jax", "two", EPOCHS, options={"backend": "jax"})
    assert trial.weights("of_jax") == plain_keras(trial, "jax", [1, 4]).weights


@parted
def test_what_is_frozen_stands_once_where_the_weights_are_given(trial: Trial, given_run: int) -> None:
    stored = trial.sql(
        "SELECT count(DISTINCT digest), sum(octet_length(data)) FROM cerebro._frozen WHERE run_id = %s",
        given_run,
    )
    ((digests, size),) = stored
    assert digests == 1 and FROZEN_BYTES < size < FROZEN_BYTES + 1000
    largest = trial.value("SELECT max(state_bytes) FROM cerebro.visits WHERE run_id = %s", given_run)
    assert largest < FROZEN_BYTES // 2
    sizes = trial.read_row("SELECT * FROM cerebro.sizes WHERE run_id = %s", given_run)
    assert sizes["frozen_bytes"] == size
    assert sizes["hopped_bytes"] <= 4 * EPOCHS * SEGMENTS * largest
    # The plan shows the frozen bytes as well.
    plan = trial.value(
        "SELECT string_agg(line, E'\\n') FROM cerebro.explain_fit('packed', 'given', 2) AS line"
    )
    assert "Frozen Bytes: " in plan


@parted
def test_seeds_make_weights_for_each_config(trial: Trial) -> None:
    run = trial.fit("packed", "of_both", "seeded", 1)
    count = "SELECT count(DISTINCT digest) FROM cerebro._frozen WHERE run_id = %s"
    assert trial.value(count, run) == 4


def test_results_are_whole(trial: Trial, given_run: int) -> None:
    start = bytes(trial.value("SELECT model_weights FROM arch WHERE model_id = 2"))
    dense = 4 * (nets.FEATURES * UNITS + UNITS)
    for key, weights in trial.weights("of_given").items():
        assert len(weights) == len(start)
        assert weights[:dense] == start[:dense]
        state = trial.sql("SELECT name, data FROM cerebro.config_state(%s, %s)", given_run, key)
        (kernel,) = [bytes(data) for name, data in state if name.endswith("dense_1/kernel")]
        assert kernel == start[: len(kernel)]
    assert len(trial.predicted("of_given", "blobs")) == trial.value("SELECT count(*) FROM blobs")


def test_a_warm_start_goes_on_to_the_same_bits(trial: Trial, given_run: int) -> None:
    trial.fit("packed", "halves", "given", 1)
    trial.fit("packed", "halves", "given", 1, warm_start=True)
    assert trial.weights("halves") == trial.weights("of_given")


def test_averages_have_the_frozen_weights(trial: Trial, given_run: int) -> None:
    start = bytes(trial.value("SELECT model_weights FROM arch WHERE model_id = 2"))
    trial.keep("one", "given", [1])
    trial.fit("packed", "averaged", "one", 2, options={"hybrid": {"average_from_epoch": 1}})
    assert trial.weights("averaged")[1][: FROZEN_BYTES // 2] == start[: FROZEN_BYTES // 2]


def stopped(trial: Trial, connect: Connect, out: str) -> int:
    """Start a run, end its caller's session after 13 visits, and return the number of the run."""
    trial.select(f"{out}_mst", [2], [ADAM, SGD], ["batch_size=10,epochs=5"])
    caller = Trial(connect())
    pid = caller.connection.info.backend_pid
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(caller.fit, "packed", out, f"{out}_mst", LONG)
        run = 1 + trial.value("SELECT max(run_id) FROM cerebro._run")
        while trial.value("SELECT count(*) FROM cerebro.visits WHERE run_id = %s", run) < 13:
            assert not begun.done()
            time.sleep(0.02)
        trial.sql("SELECT pg_terminate_backend(%s)", pid)
        with pytest.raises(psycopg2.Error):
            begun.result()
    while trial.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run) != "interrupted":
        time.sleep(0.1)
    return run


def test_a_killed_run_resumes_to_the_same_bits(trial: Trial, connect: Connect) -> None:
    run = stopped(trial, connect, "killed")
    trial.sql("SELECT cerebro.resume(%s)", run)
    trial.fit("packed", "whole", "killed_mst", LONG)
    assert trial.weights("killed") == trial.weights("whole")


@parted
def test_damaged_frozen_weights_are_named(trial: Trial, connect: Connect) -> None:
    run = stopped(trial, connect, "hurt")
    broken = "overlay(data PLACING '\\x00000000' FROM 500)"
    trial.sql(f"UPDATE cerebro._frozen SET data = {broken} WHERE run_id = %s", run)
    trial.sql("SELECT cerebro.resume(%s)", run)
    reason = trial.value("SELECT max(reason) FROM cerebro._failure WHERE run_id = %s", run)
    assert "is damaged: The checksum of part 0 does not match." in reason


@parted
def test_groups_share_what_is_frozen(trial: Trial) -> None:
    trial.sql("CREATE TABLE grouped AS SELECT *, y % 2 AS kind FROM blobs")
    trial.pack("grouped", "by_kind", options={"group_by": ["kind"]})
    trial.keep("in_groups", "given", [1, 3])
    found = {}
    for fuse in ("exact", "off"):
        out = f"fused_{fuse}"
        run = trial.fit("by_kind", out, "in_groups", 2, options={"backend": "jax", "fuse": fuse})
        rows = trial.sql(f"SELECT mst_key, kind, model_weights FROM {out} ORDER BY 1, 2")
        found[fuse] = [(key, kind, bytes(data)) for key, kind, data in rows]
        count = "SELECT count(DISTINCT digest) FROM cerebro._frozen WHERE run_id = %s"
        assert trial.value(count, run) == 1
    assert found["exact"] == found["off"]


def test_what_is_frozen_goes_with_its_run(trial: Trial) -> None:
    trial.keep("last", "given", [1])
    run = trial.fit("packed", "forgotten", "last", 1)
    trial.sql("SELECT cerebro.forget(%s)", run)
    assert trial.value("SELECT count(*) FROM cerebro._frozen WHERE run_id = %s", run) == 0


def test_a_search_that_copies_and_stops_configs_keeps_what_is_frozen(trial: Trial) -> None:
    """Population based training clones states; the frozen weights of all configs stay as they were loaded."""
    space = (
        '{"loss": "categorical_crossentropy", "metrics": ["accuracy"],'
        ' "optimizer_params_list": [{"optimizer": "SGD", "lr": {"float": [0.0001, 0.3], "log": true}}]}'
    )
    start = bytes(trial.value("SELECT model_weights FROM arch WHERE model_id = 2"))
    found = []
    for out in ("searched", "again"):
        trial.call(
            "madlib_keras_automl", "packed", out, "arch", f"{out}_mst", [2], space, '{"batch_size": 20}',
            "pbt", "population=4, num_iterations=6", 1, options={"threads": 1},
        )  # fmt: skip
        found.append(trial.weights(out))
    taken = "SELECT decision FROM cerebro.decisions JOIN searched_summary USING (run_id)"
    assert ("clone",) in trial.sql(taken)
    assert found[0] == found[1]
    assert all(weights[: FROZEN_BYTES // 2] == start[: FROZEN_BYTES // 2] for weights in found[0].values())
    if trial.topology != "greenplum":
        count = "SELECT count(DISTINCT digest) FROM cerebro._frozen JOIN searched_summary USING (run_id)"
        assert trial.value(count) == 1
