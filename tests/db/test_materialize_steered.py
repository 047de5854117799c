"""Searches and steered runs keep outputs of frozen layers, with the same bits as if they did not."""

from __future__ import annotations

import numpy as np
import pytest

import nets
from steering import Run
from trial import SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES, UNITS = 12, 2000
NET = nets.sequential(
    [FEATURES],
    nets.layer("Dense", units=UNITS, activation="relu", trainable=False, name="low"),
    nets.layer("Dense", units=UNITS, activation="tanh", trainable=False, name="high"),
    nets.layer("Dense", units=3, activation="softmax"),
)
SIZES = (FEATURES * UNITS + UNITS, UNITS * UNITS + UNITS, UNITS * 3 + 3)
KINDS = """{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
    'optimizer_params_list': [{'optimizer': ['SGD', 'Adam'], 'learning_rate': [0.001, 0.1, 'log']}]}"""


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    for name, seed in (("blobs", 0), ("others", 4)):
        trial.table(name, "x real[], y integer", rows_of(*blobs(400, features=FEATURES, seed=seed)))
    trial.pack("blobs", "packed", options={"segments": 2})
    trial.pack_validation("others", "others_packed", "packed")
    weights = np.random.default_rng(1).normal(size=sum(SIZES), scale=0.05).astype("<f4")
    trial.model(NET, weights=weights.tobytes())
    trial.select("long", [1], [SGD], ["batch_size=1,epochs=400", "batch_size=50,epochs=1"])


def cuts(trial: Trial, out: str) -> int:
    found = "SELECT limits::json -> 'cuts' FROM cerebro._run JOIN {}_summary USING (run_id)"
    return len(trial.value(found.format(out)) or {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "params"),
    [("asha", "num_configs=8, num_iterations=9"), ("pbt", "population=4, num_iterations=4, replaced=2")],
)
def test_a_search_prunes_as_without(trial: Trial, method: str, params: str) -> None:
    found = []
    # A search decides by what ends first, so the second search replays the decisions of the first.
    replay: dict[str, object] = {}
    for materialize in ("auto", "off"):
        out = f"{method}_{materialize}"
        trial.call(
            "madlib_keras_automl", "packed", out, "arch", f"{out}_best", [1], KINDS, "{'batch_size': [16]}",
            method, params, validation_table="others_packed",
            options={"threads": 1, "materialize": materialize, **replay},
        )  # fmt: skip
        replay = {"replay": trial.value(f"SELECT run_id FROM {out}_summary")}
        ends = f"SELECT mst_key, compile_params, status, metrics_iters FROM {out}_info ORDER BY mst_key"
        found.append((cuts(trial, out), trial.weights(out), trial.sql(ends)))
    assert [count for count, *_ in found] == [1, 0]
    assert found[0][1:] == found[1][1:]
    assert len({row[3][-1] for row in found[0][2]}) > 1 or method == "pbt"


@pytest.mark.slow
def test_a_clone_unfreezes_and_the_others_go_on(run: Run, trial: Trial) -> None:
    run.start("steered", "long", 2)
    run.steer("pause")
    assert run.steer("clone_config", 2, None, "batch_size=50, epochs=1, unfreeze_at={2: 'high'}", False) == [
        3
    ]
    run.steer("delete_config", 1)
    run.steer("resume")
    run.end()
    assert cuts(trial, "steered") == 1
    trial.keep("alone", "long", [2])
    trial.fit("packed", "plain", "alone", 2, options={"backend": "jax", "materialize": "off"})
    given = bytes(trial.value("SELECT model_weights FROM arch WHERE model_id = 1"))
    found = trial.weights("steered")
    assert found[2] == trial.weights("plain")[2]
    low, high = 4 * SIZES[0], 4 * (SIZES[0] + SIZES[1])
    assert found[3][:low] == given[:low]
    assert found[3][low:high] != given[low:high] == found[2][low:high]
