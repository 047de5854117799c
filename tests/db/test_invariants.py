"""The invariants of a run: completeness, isolation, whole visits, and the same bits whatever happens."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg2
import pytest

import nets
import reference
from fixtures import execute
from segments import kill_a_visit
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

SEED, EPOCHS, SEGMENTS = 7, 2, 2
LOSS = "categorical_crossentropy"
DECAY = ["ExponentialDecay", {"initial_learning_rate": 0.05, "decay_steps": 10, "decay_rate": 0.8}]
OPTIMIZERS = {
    "adam": ["Adam", {"learning_rate": 0.01}],
    "momentum": ["SGD", {"learning_rate": 0.05, "momentum": 0.9}],
    "schedule": ["SGD", {"learning_rate": DECAY}],
    # The gradients of three batches make a step, also where a visit ends between them.
    "accumulating": ["Adam", {"learning_rate": 0.01, "gradient_accumulation_steps": 3}],
}
ARCHITECTURES = {"mlp": nets.mlp_with_dropout, "cnn": nets.cnn, "lstm": nets.lstm}
# JAX compiles each batch shape anew, which is most of this module's time.
JAX_KEYS = (3, 4, 6, 8)
# Architecture, optimizer, batch size, passes over the partition in each visit.
CONFIGS = [
    ("mlp", "adam", 32, 1),
    ("mlp", "momentum", 20, 2),
    ("mlp", "schedule", 40, 1),
    ("cnn", "adam", 32, 1),
    ("cnn", "momentum", 50, 1),
    ("lstm", "momentum", 30, 1),
    ("lstm", "schedule", 32, 1),
    ("mlp", "accumulating", 25, 1),
]


def as_text(call: list) -> str:
    """Return an optimizer as text for compile parameters, for example `SGD(learning_rate=0.1)`."""
    name, arguments = call
    parts = [f"{key}={as_text(v) if isinstance(v, list) else v}" for key, v in arguments.items()]
    return f"{name}({','.join(parts)})"


def compile_text(optimizer: str) -> str:
    return f"loss='{LOSS}',optimizer={as_text(OPTIMIZERS[optimizer])!r},metrics=['accuracy']"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    """Pack rows into small buffers: batches span several buffers, and the last batch is short."""
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(240)))
    trial.pack("blobs", "packed", buffer_size=37)
    models = {name: trial.model(make()) for name, make in ARCHITECTURES.items()}
    trial.sql(
        "CREATE TABLE mst (mst_key integer, model_id integer, compile_params varchar, fit_params varchar)"
    )
    for key, (net, optimizer, batch_size, passes) in enumerate(CONFIGS, 1):
        fit = f"batch_size={batch_size},epochs={passes}"
        trial.sql("INSERT INTO mst VALUES (%s, %s, %s, %s)", key, models[net], compile_text(optimizer), fit)
    trial.sql(
        "CREATE TABLE mst_summary AS SELECT 'arch'::varchar model_arch_table, NULL::varchar object_table"
    )


@dataclass(frozen=True)
class Done:
    """The number of a finished run of all configs, and the weights of each config."""

    run_id: int
    weights: dict[int, bytes]


@pytest.fixture(scope="module")
def done(trial: Trial, tables: None) -> Done:
    run_id = trial.fit("packed", "tensorflow_all", "mst", EPOCHS)
    return Done(run_id, trial.weights("tensorflow_all"))


@pytest.fixture(scope="module")
def jax(trial: Trial, tables: None) -> Done:
    trial.keep("mst_jax", "mst", JAX_KEYS)
    run_id = trial.fit("packed", "jax_some", "mst_jax", EPOCHS, options={"backend": "jax"})
    return Done(run_id, trial.weights("jax_some"))


def plain_keras(trial: Trial, backend: str, keys: Sequence[int]) -> reference.Found:
    """Train the configs with these keys by plain Keras, and return the result."""
    found, counts = {}, Counter()
    for segment, x, y in trial.buffers("packed"):
        place = f"{segment}_{counts[segment]}"
        found |= {f"x_{place}": x, f"y_{place}": y}
        counts[segment] += 1
    configs = [
        reference.Config(key, ARCHITECTURES[net](), OPTIMIZERS[optimizer], LOSS, batch_size, passes)
        for key, (net, optimizer, batch_size, passes) in enumerate(CONFIGS, 1)
        if key in keys
    ]
    job = reference.Job(backend, SEED, EPOCHS, [counts[s] for s in range(SEGMENTS)], configs)
    with tempfile.TemporaryDirectory() as folder:
        return reference.run(job, found, Path(folder))


def test_every_config_visits_every_segment_once_in_every_epoch(trial: Trial, done: Done) -> None:
    visits = trial.sql("SELECT mst_key, epoch, segment FROM cerebro.visits WHERE run_id = %s", done.run_id)
    keys = range(1, len(CONFIGS) + 1)
    assert sorted(visits) == sorted(itertools.product(keys, range(1, EPOCHS + 1), range(SEGMENTS)))


@pytest.mark.parametrize("whose", ["mst_key", "segment"])
def test_visits_do_not_overlap(trial: Trial, done: Done, whose: str) -> None:
    """A config is in only one visit at a time, and a segment works on only one visit at a time."""
    overlaps = trial.value(
        f"SELECT count(*) FROM cerebro.visits a JOIN cerebro.visits b USING (run_id, {whose})"
        " WHERE run_id = %s AND a.started_at < b.started_at AND b.started_at < a.ended_at",
        done.run_id,
    )
    assert overlaps == 0


def test_segments_work_at_the_same_time(trial: Trial, done: Done) -> None:
    overlaps = trial.value(
        "SELECT count(*) FROM cerebro.visits a JOIN cerebro.visits b USING (run_id)"
        " WHERE run_id = %s AND a.segment < b.segment"
        " AND (a.started_at, a.ended_at) OVERLAPS (b.started_at, b.ended_at)",
        done.run_id,
    )
    assert overlaps > 0


@pytest.mark.tensorflow
def test_tensorflow_run_equals_plain_keras_bit_for_bit(trial: Trial, done: Done) -> None:
    expected = plain_keras(trial, "tensorflow", range(1, len(CONFIGS) + 1))
    assert differing(done.weights, expected.weights) == []


def test_jax_run_equals_plain_keras_bit_for_bit(trial: Trial, jax: Done) -> None:
    expected = plain_keras(trial, "jax", JAX_KEYS)
    assert differing(jax.weights, expected.weights) == []


@pytest.mark.tensorflow
def test_backends_are_not_the_same(done: Done, jax: Done) -> None:
    """TensorFlow and JAX give different bits; otherwise the option `backend` would have no effect."""
    same = {key: done.weights[key] for key in JAX_KEYS}
    assert len(differing(same, jax.weights)) == len(JAX_KEYS)


def test_same_bits_from_a_second_run(trial: Trial, done: Done) -> None:
    trial.fit("packed", "second", "mst", EPOCHS)
    assert differing(trial.weights("second"), done.weights) == []


@pytest.mark.parametrize("key", [1, 4, 6])
def test_same_bits_alone(trial: Trial, done: Done, key: int) -> None:
    """A config's result does not depend on the other configs of the run."""
    trial.keep(f"mst_{key}", "mst", [key])
    trial.fit("packed", f"alone_{key}", f"mst_{key}", EPOCHS)
    assert differing(trial.weights(f"alone_{key}"), {key: done.weights[key]}) == []


def test_another_seed_gives_other_bits(trial: Trial, done: Done) -> None:
    trial.fit("packed", "other_seed", "mst", EPOCHS, options={"seed": SEED + 1})
    assert len(differing(trial.weights("other_seed"), done.weights)) == len(CONFIGS)


@pytest.mark.slow
def test_same_bits_in_the_transaction_that_packed(trial: Trial, done: Done) -> None:
    """No other session can see the rows, so the caller's session trains, and a notice says so."""
    trial.notices()
    trial.sql("BEGIN")
    trial.pack("blobs", "fresh", buffer_size=37)
    run_id = trial.fit("fresh", "inline_all", "mst", EPOCHS)
    found = trial.weights("inline_all")
    trial.sql("COMMIT")
    assert differing(found, done.weights) == []
    assert "uses only this session" in trial.notices()
    assert trial.value("SELECT topology FROM cerebro.runs WHERE run_id = %s", run_id) == "inline"
    assert trial.value("SELECT count(*) FROM cerebro.visits WHERE run_id = %s", run_id) == len(CONFIGS) * 4


def test_a_config_that_fails_in_the_callers_own_session_is_left_out(trial: Trial) -> None:
    diverging = "loss='mse',optimizer='SGD(lr=1e20)'"
    trial.select("far_mst", [1], [diverging, SGD], ["batch_size=16,epochs=1"])
    trial.notices()
    trial.sql("BEGIN ISOLATION LEVEL REPEATABLE READ")
    run_id = trial.fit("packed", "without_one", "far_mst", 3)
    assert trial.value("SELECT topology FROM cerebro.runs WHERE run_id = %s", run_id) == "inline"
    trial.sql("COMMIT")
    assert len(trial.weights("without_one")) == 1
    assert "failed and is left out: the loss became" in trial.notices()


def test_number_of_segments_decides_the_bits(trial: Trial, done: Done) -> None:
    trial.pack("blobs", "in_one", buffer_size=37, options={"segments": 1})
    trial.keep("mst_in_one", "mst", [1])
    trial.fit("in_one", "one_segment", "mst_in_one", EPOCHS)
    assert differing(trial.weights("one_segment"), {1: done.weights[1]}) != []


def test_same_bits_when_rows_are_streamed(trial: Trial) -> None:
    """Partitions of 20 MB give the same bits with enough memory for all rows and with too little."""
    trial.sql(
        "CREATE TABLE wide AS SELECT array_fill(sin(i)::real, ARRAY[4096]) AS x, i %% 3 AS y"
        " FROM generate_series(1, %s) AS i",
        2600,
    )
    trial.pack("wide", "wide_packed", buffer_size=150)
    wide = trial.model(nets.mlp(4096, 4))
    trial.select("wide_mst", [wide], [SGD], ["batch_size=64,epochs=2"])
    for name, more in (("whole", {}), ("parts", {"epochs_per_pass": 3})):
        for memory in (16, 64):
            out = f"{name}_{memory}"
            trial.fit("wide_packed", out, "wide_mst", 1, options={"memory_mb": memory, **more})
        assert trial.weights(f"{name}_16") == trial.weights(f"{name}_64")
    assert trial.weights("whole_16") != trial.weights("parts_16")


def test_a_visit_is_written_whole_or_not_at_all(trial: Trial, done: Done) -> None:
    """If the log row of a visit cannot be written, the state of the visit is not stored either."""
    trial.keep("mst_refused", "mst", [1])
    trial.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'refused'; END$$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON cerebro._visit"
        " FOR EACH ROW WHEN (NEW.step = 3) EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(psycopg2.Error, match="refused"):
        trial.fit("packed", "refused", "mst_refused", EPOCHS)
    trial.sql("DROP TRIGGER refuse ON cerebro._visit")
    run_id = trial.value("SELECT max(run_id) FROM cerebro.runs")
    assert trial.value(
        "SELECT array_agg(step ORDER BY step) FROM cerebro.visits WHERE run_id = %s", run_id
    ) == [1, 2]
    assert trial.value("SELECT max(step) FROM cerebro._state WHERE run_id = %s", run_id) == 2
    assert trial.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run_id) == "failed"


def test_a_lost_session_changes_nothing(trial: Trial, database: str) -> None:
    """If a segment session is killed in a visit, the visit is made again, and the bits are the same."""
    trial.select("long_mst", [1], [ADAM, SGD], ["batch_size=4,epochs=5"])
    trial.fit("packed", "undisturbed", "long_mst", 4)
    with ThreadPoolExecutor() as pool, closing(psycopg2.connect(dbname=database)) as other:
        other.autocommit = True
        run = pool.submit(trial.fit, "packed", "disturbed", "long_mst", 4)
        killed = kill_a_visit(other, run)
        # As one does that looks whether it may resume the run, while the new session says that it is there.
        other.autocommit = False
        execute(other, "SELECT FROM cerebro._run FOR UPDATE")
        run_id = run.result(timeout=100)
    assert killed
    assert trial.weights("disturbed") == trial.weights("undisturbed")
    visits = trial.sql("SELECT mst_key, epoch, segment FROM cerebro.visits WHERE run_id = %s", run_id)
    assert sorted(visits) == sorted(itertools.product((1, 2), range(1, 5), range(SEGMENTS)))


def differing(found: Mapping[int, bytes], expected: Mapping[int, bytes]) -> list[str]:
    """Return a line for each config whose bytes differ, with the largest difference."""
    assert found.keys() == expected.keys()
    return [
        f"config {key} {CONFIGS[key - 1][:2]}: {largest(data, expected[key])}"
        for key, data in sorted(found.items())
        if data != expected[key]
    ]


def largest(one: bytes, other: bytes) -> float | str:
    if len(one) != len(other):
        return f"{len(one)} bytes against {len(other)}"
    return float(np.abs(np.frombuffer(one, "<f4") - np.frombuffer(other, "<f4")).max())
