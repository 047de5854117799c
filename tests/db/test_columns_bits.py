"""Training on columns of every kind gives the same bits as plain Keras on the packed rows, each time."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import reference
from mixed import CUSTOMERS, picture
from trial import Trial

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

ROWS, EPOCHS = 240, 2
# Numbers, dates and a one-hot category make one vector; each of the others is an input of its own.
SAID = {
    "income": {"scale": "log", "impute": "median", "indicator": True},
    "plan": {"encode": "one_hot"},
    "city": {"encode": "embed"},
    "level": {"encode": "hash", "buckets": 5},
    "note": {"tokens": 6, "vocabulary": 50},
    "joined": {"parts": ["year", "month", "weekday"]},
    "x": {"divide": 7},
    "photo": {"decode": [8, 8, 3]},
}
LISTED = ", ".join(["age", "active", *SAID])
INPUTS = ["independent_var", "city", "level", "note", "x", "photo"]
COMPILE = "loss='categorical_crossentropy',optimizer='Adam(learning_rate=0.01)'"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    """Pack rows into small buffers: batches span several buffers, and the last batch is short."""
    trial.sql(CUSTOMERS, ROWS)
    trial.table("photos", "id integer, photo bytea", [(i, picture(i)) for i in range(1, ROWS + 1)])
    trial.sql(
        "CREATE VIEW seen AS SELECT c.*, p.photo, 0.5 + c.id % 3 AS w"
        " FROM customers c JOIN photos p USING (id)"
    )
    said = {"columns": SAID, "weight": "w"}
    trial.pack("seen", "packed", "gone", LISTED, options=said, buffer_size=37)
    trial.sql("SELECT cerebro.load_net('arch', 'packed', 'tabular')")
    trial.select("configs", [1], [COMPILE], ["batch_size=32", "batch_size=25,epochs=2"], arch="arch")


def test_all_kinds_are_there(trial: Trial) -> None:
    ((found, weight),) = trial.sql("SELECT independent_varname, weight_varname FROM packed_summary")
    assert (sorted(found), weight) == (sorted(INPUTS), "w")


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("tensorflow", marks=pytest.mark.tensorflow),
        "jax",
    ],
)
def test_columns_are_trained_on_as_by_plain_keras_and_again(trial: Trial, backend: str) -> None:
    for number in (1, 2):
        trial.fit("packed", f"{backend}_{number}", "configs", EPOCHS, options={"backend": backend})
    found = trial.weights(f"{backend}_1")
    assert found == trial.weights(f"{backend}_2")
    assert found == plain(trial, backend).weights


def plain(trial: Trial, backend: str) -> reference.Found:
    """Train the two configs of the table `configs` with plain Keras, and return the result."""
    inputs = trial.value("SELECT independent_varname FROM packed_summary")
    rows, counts = buffers(trial, inputs)
    made = trial.value("SELECT model_arch::text FROM arch")
    adam = ["Adam", {"learning_rate": 0.01}]
    configs = [
        reference.Config(key, made, adam, "categorical_crossentropy", size, passes)
        for key, (size, passes) in enumerate([(32, 1), (25, 2)], 1)
    ]
    job = reference.Job(backend, 7, EPOCHS, counts, configs, inputs=inputs, weighted=True)
    with tempfile.TemporaryDirectory() as folder:
        return reference.run(job, rows, Path(folder))


def buffers(trial: Trial, inputs: list[str]) -> tuple[dict[str, np.ndarray], list[int]]:
    """Return the arrays in the buffers of `packed` by name, and the number of buffers of each segment."""
    names = {**dict.fromkeys(inputs, "<f4"), "gone": "<i2", "__weight__": "<f4"}
    listed = ", ".join(f"{name}, {name}_shape" for name in names)
    places: dict[int, int] = {}
    found: dict[str, np.ndarray] = {}
    counts: Counter[int] = Counter()
    called = {"gone": "y", "__weight__": "w"}
    for key, *fields in trial.sql(f"SELECT __dist_key__, {listed} FROM packed ORDER BY buffer_id"):
        segment = places.setdefault(key, len(places))
        for (name, kind), data, shape in zip(names.items(), fields[::2], fields[1::2], strict=True):
            place = f"{called.get(name, name)}_{segment}_{counts[segment]}"
            found[place] = np.frombuffer(data, kind).reshape(shape)
        counts[segment] += 1
    return found, [counts[segment] for segment in sorted(counts)]
