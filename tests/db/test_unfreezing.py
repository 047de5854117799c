"""Fit parameter `unfreeze_at`: frozen layers train from a later epoch on, and states then grow."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import pytest

import nets
from trial import Trial, blobs, cancelled, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

LOSS = "loss='categorical_crossentropy',optimizer='{}',metrics=['accuracy']"
SGD, ADAM = LOSS.format("SGD(learning_rate=0.1)"), LOSS.format("Adam(learning_rate=0.01)")
EPOCHS, SEED = 3, 7
NET = nets.sequential(
    [nets.FEATURES],
    nets.layer("Dense", units=20, activation="relu", trainable=False, name="low"),
    nets.layer("Dense", units=12, activation="tanh", trainable=False, name="middle"),
    nets.layer("Dropout", rate=0.2),
    nets.layer("Dense", units=nets.CLASSES, activation="softmax", name="top"),
)
SIZES = {"low": 64 * 20 + 20, "middle": 20 * 12 + 12, "top": 12 * 3 + 3}
AT = "batch_size=16,epochs=1,unfreeze_at={2: 'middle', 3: ['l*']}"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(200)))
    trial.pack("blobs", "packed", buffer_size=37)
    trial.model(NET, weights=start().tobytes())
    trial.select("mst", [1], [SGD, ADAM], [AT, "batch_size=16,epochs=1"])


def start() -> np.ndarray:
    return np.random.default_rng(3).normal(size=sum(SIZES.values()), scale=0.2).astype("<f4")


def parts(weights: bytes) -> dict[str, bytes]:
    ends = 4 * np.cumsum(list(SIZES.values()))
    return {
        name: weights[end - 4 * size : end] for (name, size), end in zip(SIZES.items(), ends, strict=True)
    }


def test_layers_train_from_their_epoch_on(trial: Trial) -> None:
    seen = {}
    for epochs in (1, 2, 3):
        trial.fit("packed", f"after_{epochs}", "mst", epochs)
        first = parts(start().tobytes())
        found = parts(trial.weights(f"after_{epochs}")[1])
        seen[epochs] = [name for name in SIZES if found[name] != first[name]]
    assert seen == {1: ["top"], 2: ["middle", "top"], 3: ["low", "middle", "top"]}
    never = parts(trial.weights("after_3")[2])
    assert [name for name in SIZES if never[name] != first[name]] == ["top"]


def test_states_grow(trial: Trial) -> None:
    run = trial.fit("packed", "grown", "mst", EPOCHS)
    sizes = (
        "SELECT max(state_bytes) FROM cerebro.visits WHERE (run_id, mst_key) = (%s, 3)"
        " GROUP BY epoch ORDER BY epoch"
    )
    if trial.topology != "greenplum":
        first, second, third = (size for (size,) in trial.sql(sizes, run))
        assert first < second < third


# Plain Keras: make the layer trainable, compile the model again, and continue to train.
PLAIN = """
import sys
sys.path[:0] = [sys.argv[2], sys.argv[3]]
import numpy as np
import reference
from cerebro_plpy import seeding
from cerebro_plpy.planner import routes
import json, keras
if keras.backend.backend() == "tensorflow":
    reference._single_threaded_tensorflow()
folder = sys.argv[1]
job = json.load(open(folder + "/job.json"))
rows = dict(np.load(folder + "/rows.npz"))
config = job["configs"][0]
model = reference._compiled(job["seed"], config)
for epoch in range(1, job["epochs"] + 1):
    for name in job["thawed"].get(str(epoch), []):
        model.get_layer(name).trainable = True
        model.compile(optimizer=keras.optimizers.SGD(learning_rate=0.1), loss=config["loss"])
    for segment in routes.route(job["seed"], epoch, config["mst_key"], len(job["buffers"])):
        order = reference._order(job, config, epoch, segment, 0, rows)
        taken = [(f"{segment}_{b}", o) for b, o in order]
        x, y = reference._joined("x", rows, taken), reference._joined("y", rows, taken)
        model.fit(x, y.astype("f4"), batch_size=16, epochs=1, shuffle=False, verbose=0)
np.save(folder + "/weights.npy", reference._flat(model))
"""


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("tensorflow", marks=pytest.mark.tensorflow),
        "jax",
    ],
)
def test_it_is_what_keras_does_by_hand(trial: Trial, tmp_path: Path, backend: str) -> None:
    import json

    import reference

    trial.keep(f"by_hand_{backend}", "mst", [1])
    trial.fit("packed", f"ours_{backend}", f"by_hand_{backend}", EPOCHS, options={"backend": backend})
    rows: dict[str, Any] = {}
    counts: Counter[int] = Counter()
    for segment, x, y in trial.buffers("packed"):
        rows |= {f"x_{segment}_{counts[segment]}": x, f"y_{segment}_{counts[segment]}": y}
        counts[segment] += 1
    config = {
        "mst_key": 1, "model_arch": NET, "optimizer": ["SGD", {"learning_rate": 0.1}], "metrics": [],
        "loss": "categorical_crossentropy", "shuffle": True, "weights": start().tolist(),
    }  # fmt: skip
    job = {
        "seed": SEED, "epochs": EPOCHS, "buffers": [counts[s] for s in range(2)], "configs": [config],
        "thawed": {"2": ["middle"], "3": ["low"]},
    }  # fmt: skip
    (tmp_path / "job.json").write_text(json.dumps(job))
    np.savez(tmp_path / "rows.npz", allow_pickle=False, **rows)
    (tmp_path / "plain.py").write_text(PLAIN)
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, tmp_path / "plain.py", tmp_path, root / "plpy", root / "tests" / "support"],
        env=reference._environment(backend), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert trial.weights(f"ours_{backend}")[1] == np.load(tmp_path / "weights.npy").tobytes()


def test_the_bits_are_the_same_after_a_cancel_and_a_warm_start(trial: Trial) -> None:
    trial.fit("packed", "at_once", "mst", EPOCHS)
    with cancelled(trial, 13):
        trial.fit("packed", "in_parts", "mst", EPOCHS)
    trial.sql("SELECT cerebro.resume(%s)", trial.value("SELECT max(run_id) FROM cerebro._run"))
    assert trial.weights("in_parts") == trial.weights("at_once")
    trial.fit("packed", "warm", "mst", 1)
    trial.fit("packed", "warm", "mst", EPOCHS - 1, warm_start=True)
    assert trial.weights("warm") == trial.weights("at_once")


def test_a_model_is_evaluated_and_predicts(trial: Trial) -> None:
    trial.fit("packed", "done", "mst", EPOCHS)
    trial.call("madlib_evaluate", "done", "packed", "measured", False, 1)
    wanted = "SELECT value FROM cerebro.leaderboard AS l JOIN done_summary USING (run_id) WHERE l.mst_key = 1"
    assert trial.value("SELECT metric FROM measured") == pytest.approx(trial.value(wanted))
    assert len(trial.predicted("done", "blobs")) == 200


@pytest.mark.parametrize(
    ("fit", "said"),
    [
        ("unfreeze_at={2: 'midle'}", 'unfreeze_at names "midle", and the net has no such layer'),
        ("unfreeze_at={0: 'middle'}", "a key of unfreeze_at is 0"),
        ("unfreeze_at='middle'", "unfreeze_at is middle"),
        ("unfreeze_at={2: []}", r"unfreeze_at\[2\] is \[\]"),
    ],
)
def test_what_is_no_layer_or_no_epoch_is_refused(trial: Trial, fit: str, said: str) -> None:
    name = f"wrong_{abs(hash(fit))}"
    with pytest.raises(psycopg2.Error, match=said):
        trial.select(name, [1], [SGD], [f"batch_size=16,epochs=1,{fit}"])
        trial.fit("packed", f"{name}_models", name, 1)


def test_groups_refuse_it(trial: Trial) -> None:
    trial.sql("CREATE TABLE kinds AS SELECT *, y % 2 AS kind FROM blobs")
    trial.pack("kinds", "by_kind", options={"group_by": ["kind"]})
    with pytest.raises(psycopg2.Error, match="unfreeze_at is not there for groups"):
        trial.fit("by_kind", "of_groups", "mst", 1)
