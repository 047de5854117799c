"""Option `fuse`: configs of one program share visits, with the same results as when they train alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import psycopg2
import pytest

import nets
from reference import BACKEND
from trial import Trial, blobs, cancelled, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES, EPOCHS = 6, 4
# JAX compiles each kind of net for a long time.
ENGINES = ("tensorflow", pytest.param("jax", marks=pytest.mark.slow))
RATES = ("0.01", "0.003", "0.02", "0.001")
LOSS = "loss='categorical_crossentropy',metrics=['accuracy'],optimizer="
ADAMS = [f"{LOSS}'Adam(lr={rate})'" for rate in RATES]
MOMENTA = [f"{LOSS}'SGD(lr={rate},momentum=0.9)'" for rate in RATES]
METRICS = "SELECT mst_key, training_loss, training_metrics FROM {}_info ORDER BY 1"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(301, features=FEATURES)))
    trial.pack("blobs", "packed")
    dropout = nets.sequential(
        [FEATURES],
        nets.layer("Dense", units=16, activation="relu"),
        nets.layer("Dropout", rate=0.3),
        nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
    )
    for net in (nets.mlp(FEATURES), dropout, nets.mlp(FEATURES, units=1000)):
        trial.model(net)
    trial.select("adams", [1], ADAMS, ["batch_size=8", "batch_size=20,epochs=2"])
    trial.select("momenta", [2], MOMENTA, ["batch_size=8", "batch_size=20,epochs=2"])


def fit(
    trial: Trial,
    out: str,
    selection: str,
    fuse: str | None,
    epochs: int = EPOCHS,
    backend: str = "jax",
    **more: Any,
) -> int:
    options = {"backend": backend, **more, **({"fuse": fuse} if fuse else {})}
    return trial.fit("packed", out, selection, epochs, metrics_compute_frequency=1, options=options)


def apart(trial: Trial, selection: str, backend: str, fuse: str = "off") -> str:
    """Train a selection once with this `fuse`, by default without, and return the name of its model table."""
    out = f"{selection}_{backend}_by_{fuse}"
    if trial.value("SELECT to_regclass(%s)", out) is None:
        run_id = fit(trial, out, selection, fuse, backend=backend)
        assert (trial.count_shared(run_id) == 0) == (fuse == "off")
    return out


@pytest.mark.slow
def test_configs_that_sum_gradients_of_several_batches_train_alone(trial: Trial) -> None:
    summing = [f"{LOSS}'Adam(lr={rate},gradient_accumulation_steps=3)'" for rate in RATES]
    trial.select("summing", [1], summing, ["batch_size=8"])
    run_id = fit(trial, "summed", "summing", "exact", epochs=1, backend=BACKEND)
    assert trial.count_shared(run_id) == 0


@pytest.mark.parametrize(
    ("selection", "fuse", "backend"),
    [
        *(
            pytest.param(selection, fuse, "tensorflow", marks=pytest.mark.tensorflow)
            for selection, fuse in (("adams", None), ("adams", "exact"), ("momenta", "exact"))
        ),
        pytest.param("adams", "exact", "jax", marks=pytest.mark.slow),
        pytest.param("adams", None, "jax", marks=pytest.mark.slow),
        pytest.param("momenta", "exact", "jax", marks=pytest.mark.slow),
    ],
)
def test_configs_that_share_visits_come_to_the_same_bits(
    trial: Trial, selection: str, fuse: str | None, backend: str
) -> None:
    out, off = f"{selection}_{backend}_{fuse}".lower(), apart(trial, selection, backend)
    run_id = fit(trial, out, selection, fuse, backend=backend)
    assert trial.count_shared(run_id) > 0
    assert trial.weights(out) == trial.weights(off)
    assert trial.sql(METRICS.format(out)) == trial.sql(METRICS.format(off))
    losses = "SELECT mst_key, step, loss FROM cerebro._visit WHERE run_id = %s ORDER BY 1, 2"
    alone = trial.value(f"SELECT run_id FROM {off}_summary")
    if backend != "jax":
        # XLA may round the running loss differently inside a loop; it is only reported.
        assert trial.sql(losses, run_id) == trial.sql(losses, alone)
    each = "SELECT count(*), count(DISTINCT (mst_key, step)) FROM cerebro._visit WHERE run_id = %s"
    assert trial.sql(each, run_id) == [(8 * 2 * EPOCHS, 8 * 2 * EPOCHS)]


def test_fast_is_close_and_gives_the_same_bits_whoever_is_in_the_bundle(trial: Trial) -> None:
    trial.notices()
    bundled = apart(trial, "adams", "jax", "fast")
    assert "in the batched form: the same bits every time, other last bits than alone" in trial.notices()
    fast, off = trial.weights(bundled), trial.weights(apart(trial, "adams", "jax"))
    assert fast != off
    for key, data in fast.items():
        ours, theirs = (np.frombuffer(one, "<f4") for one in (data, off[key]))
        np.testing.assert_allclose(ours, theirs, atol=1e-3)
    trial.keep("few", "adams", [1, 2, 5])
    fit(trial, "few_fast", "few", "fast")
    assert trial.weights("few_fast") == {key: fast[key] for key in (1, 2, 5)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fuse", "backend"),
    [
        ("exact", "jax"),
        ("fast", "jax"),
        ("exact", "tensorflow"),
    ],
)
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(trial: Trial, fuse: str, backend: str) -> None:
    out = f"again_{backend}_{fuse}"
    with cancelled(trial, 20):
        fit(trial, out, "adams", fuse, backend=backend)
    trial.sql("SELECT cerebro.resume(%s)", trial.value("SELECT max(run_id) FROM cerebro.runs"))
    expected = apart(trial, "adams", backend, "fast" if fuse == "fast" else "off")
    assert trial.weights(out) == trial.weights(expected)


@pytest.mark.parametrize("fuse", [None, "exact"])
@pytest.mark.parametrize("backend", ENGINES)
def test_one_that_fails_leaves_the_others_alone(trial: Trial, fuse: str | None, backend: str) -> None:
    trial.sql("DROP TABLE IF EXISTS doomed, doomed_summary")
    out = f"doomed_{backend}_{fuse}".lower()
    trial.sql("CREATE TABLE doomed AS SELECT * FROM momenta")
    trial.sql("CREATE TABLE doomed_summary AS SELECT * FROM momenta_summary")
    trial.sql(
        "UPDATE doomed SET compile_params = replace(compile_params, '0.02', '1e30') WHERE mst_key IN (5, 6)"
    )
    trial.notices()
    run_id = fit(trial, out, "doomed", fuse, backend=backend)
    failed = "SELECT mst_key FROM cerebro.progress WHERE run_id = %s AND status = 'failed' ORDER BY 1"
    assert trial.sql(failed, run_id) == [(5,), (6,)]
    off = trial.weights(apart(trial, "momenta", backend))
    assert trial.weights(out) == {key: data for key, data in off.items() if key not in (5, 6)}


@pytest.mark.slow
def test_configs_are_stopped_by_themselves(trial: Trial) -> None:
    ended = "SELECT mst_key, status, reason, training_loss FROM {}_info ORDER BY 1"
    for fuse in ("exact", "off"):
        fit(trial, f"patient_{fuse}", "adams", fuse, 8, patience=1, min_delta=0.02)
    assert trial.value("SELECT count(*) FROM patient_off_info WHERE status = 'stopped'") > 0
    assert trial.weights("patient_exact") == trial.weights("patient_off")
    assert trial.sql(ended.format("patient_exact")) == trial.sql(ended.format("patient_off"))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ENGINES)
def test_a_search_shares_visits_and_compares_as_it_does_without(trial: Trial, backend: str) -> None:
    grid = (
        "{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],"
        " 'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.001, 0.1, 'log']}]}"
    )
    for fuse in ("exact", "chosen", "off"):
        out = f"{backend}_{fuse}"
        trial.call(
            "madlib_keras_automl", "packed", f"searched_{out}", "arch", f"found_{out}", [1], grid,
            "{'batch_size': [8], 'epochs': [1]}", "hyperband", "R=4, eta=2, skip_last=0", random_state=3,
            options={"backend": backend, "threads": 1, **({} if fuse == "chosen" else {"fuse": fuse})},
        )  # fmt: skip
        shared = trial.count_shared(trial.value("SELECT max(run_id) FROM cerebro.runs"))
        assert (shared > 0) == (fuse != "off")
        assert trial.weights(f"searched_{out}") == trial.weights(f"searched_{backend}_exact")


# The loss gives the same value for all full batches.
UNSTEADY = """
import keras, tensorflow

def unsteady(y_true, y_pred):
    rest = tensorflow.cast(tensorflow.shape(y_true)[0] < 8, "float32")
    chance = rest * tensorflow.random.uniform([])
    return keras.losses.categorical_crossentropy(y_true, y_pred) * (1 + chance)
"""


def test_a_program_that_comes_to_other_bits_is_declined_with_the_reason(trial: Trial) -> None:
    trial.sql("SELECT cerebro.register_function('unsteady', %s, 'loss')", UNSTEADY)
    losses = [f"loss='unsteady',optimizer='Adam(lr=0.00{number})'" for number in range(1, 9)]
    trial.select("unsteady_configs", [1], losses, ["batch_size=8"])
    trial.notices()
    fit(trial, "unsteady", "unsteady_configs", "exact", backend="tensorflow", threads=1)
    said = "and others of its kind train one after the other: as one program, two mini-batches came to"
    assert trial.notices().count(said) == 1


def test_the_plan_says_which_share_visits_and_why(trial: Trial) -> None:
    def explained(selection: str, **options: Any) -> list[dict[str, Any]]:
        (line,) = trial.sql(
            "SELECT cerebro.explain_fit('packed', %s, 3, options => %s, format => 'json')",
            selection, json.dumps({"backend": "jax", **options}),
        )  # fmt: skip
        return json.loads(line[0])[0]["Plan"]["Bundles"]

    first, second = explained("adams")
    assert (first["Configs"], first["Together"], first["Form"]) == ([1, 3, 5, 7], 2, "one by one")
    assert second["Configs"] == [2, 4, 6, 8]
    assert [one["Form"] for one in explained("adams", fuse="fast")] == ["fast", "fast"]
    (other, _) = explained("adams", backend="tensorflow")
    assert (other["Together"], other["Form"]) == (2, "one by one")
    (other, _) = explained("adams", backend="tensorflow", fuse="exact")
    assert (other["Together"], other["Form"]) == (2, "exact")


@pytest.mark.slow
def test_fast_is_refused_or_declined_where_there_is_no_such_form(trial: Trial) -> None:
    with pytest.raises(psycopg2.Error, match="option fuse is fast, and tensorflow has no such form"):
        trial.fit("packed", "none", "adams", 1, options={"fuse": "fast", "backend": "tensorflow"})
    trial.select("large", [3], ADAMS[:4], ["batch_size=8"])
    trial.notices()
    fit(trial, "large_fast", "large", "fast")
    assert "not configs 1, 2, 3, 4: more than 4,096 weights" in trial.notices()
    fit(trial, "large_off", "large", "off")
    assert trial.weights("large_fast") == trial.weights("large_off")
