"""Functions for use elsewhere: the variables of a state, parameters as JSON, empty packed tables."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import psycopg2
import pytest

import nets
from fixtures import Connect, MakeRole, execute
from trial import SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

MOMENTUM = SGD.replace("lr=0.1", "lr=0.1,momentum=0.9")


@pytest.fixture(scope="module")
def run(trial: Trial) -> int:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(60, features=4)))
    trial.pack("blobs", "packed")
    trial.model(nets.mlp(4))
    trial.select("configs", [1], [MOMENTUM], ["batch_size=10"])
    trial.fit("packed", "models", "configs", 2, options={"seed": 1, "backend": "jax"})
    return trial.value("SELECT run_id FROM models_summary")


def test_a_state_has_the_weights_and_what_the_optimizer_needs(trial: Trial, run: int) -> None:
    rows = trial.sql("SELECT * FROM cerebro.config_state(%s, 1)", run)
    assert [number for number, *_ in rows] == list(range(len(rows)))
    weights = b"".join(bytes(data) for _, _, kind, _, _, data in rows if kind == "weight")
    assert weights == bytes(trial.value("SELECT model_weights FROM models"))
    moments = {
        name.rpartition("/")[2]: np.frombuffer(data, dtype)
        for _, name, kind, _, dtype, data in rows
        if kind == "optimizer"
    }
    assert moments["iteration"] == 2 * 60 // 10
    assert all(np.prod(shape) * np.dtype(dtype).itemsize == len(data) for _, _, _, shape, dtype, data in rows)
    assert sum(array.size > 1 and bool(array.any()) for array in moments.values()) == 4


def test_a_clone_without_visits_has_the_state_of_its_source(trial: Trial, run: int) -> None:
    columns = "run_id, model_id, compile_params, fit_params, backend"
    trial.sql(
        f"INSERT INTO cerebro._config ({columns}, mst_key, source_key, source_step)"
        f" SELECT {columns}, 2, 1, 4 FROM cerebro._config WHERE run_id = %s",
        run,
    )
    own, clone = (trial.sql("SELECT * FROM cerebro.config_state(%s, %s)", run, key) for key in (1, 2))
    assert own
    assert [bytes(row[-1]) for row in own] == [bytes(row[-1]) for row in clone]
    trial.sql("DELETE FROM cerebro._config WHERE run_id = %s AND mst_key = 2", run)


def test_a_state_that_is_not_there_says_so(trial: Trial, run: int) -> None:
    with pytest.raises(psycopg2.Error, match=f"run {run} has no config 7"):
        trial.sql("SELECT * FROM cerebro.config_state(%s, 7)", run)
    trial.fit("packed", "gone", "configs", 1, options={"seed": 1, "backend": "jax"})
    gone = trial.value("SELECT run_id FROM gone_summary")
    trial.sql("DELETE FROM cerebro._state WHERE run_id = %s", gone)
    with pytest.raises(psycopg2.Error, match=f"there is no state of config 1 of run {gone}"):
        trial.sql("SELECT * FROM cerebro.config_state(%s, 1)", gone)


def test_the_state_of_somebody_elses_run_is_as_one_that_is_not_there(
    run: int, role: MakeRole, connect: Connect
) -> None:
    with pytest.raises(psycopg2.Error, match=f"you have no run {run}"):
        execute(connect(user=role()), "SELECT * FROM cerebro.config_state(%s, 1)", run)


def test_parameters_are_read_as_json(trial: Trial) -> None:
    compiled = (
        "optimizer='sgd(lr=ExponentialDecay(initial_learning_rate=0.1,decay_steps=10,decay_rate=0.9))',"
        "loss={'a': Huber(delta=0.5), 'b': 'mse'},metrics=['acc']"
    )
    found = trial.value("SELECT cerebro.read_params(%s, %s)", compiled, "batch_size=3,class_weight={0: 1.5}")
    decay = {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.9}
    assert found["optimizer"] == {
        "name": "SGD",
        "arguments": {"learning_rate": {"name": "ExponentialDecay", "arguments": decay}},
    }
    assert found["loss"] == {"a": {"name": "Huber", "arguments": {"delta": 0.5}}, "b": "mse"}
    assert (found["batch_size"], found["epochs"], found["class_weight"]) == (3, 1, {"0": 1.5})
    with pytest.raises(psycopg2.Error, match="Compile param check failed"):
        trial.sql("SELECT cerebro.read_params('optimizer=__import__(1)', 'batch_size=3')")


def summary(trial: Trial, **changes: Any) -> str:
    """Return the summary of `packed` as JSON, with `changes` in place of some of its values."""
    row = trial.value("SELECT to_json(s) FROM packed_summary AS s")
    kinds = {"y_class_values": "integer[]"}
    return json.dumps({**row, "y_class_values": [str(v) for v in row["y_class_values"]],
                       "class_value_types": kinds, **changes})  # fmt: skip


@pytest.mark.usefixtures("run")
def test_an_empty_packed_table_is_as_the_other_was(trial: Trial) -> None:
    trial.sql("SELECT cerebro.create_packed_table('copy', %s)", summary(trial))
    trial.sql("INSERT INTO copy SELECT * FROM packed")
    assert trial.sql("SELECT * FROM packed EXCEPT SELECT * FROM copy") == []
    trial.fit("copy", "of_copy", "configs", 2, options={"seed": 1, "backend": "jax"})
    assert trial.value("SELECT a.model_weights = b.model_weights FROM models AS a, of_copy AS b")


WRONG = [
    ({"segments": 0}, "segments in the summary is 0"),
    ({"segments": 10**9}, "segments in the summary is 1000000000"),
    ({"segments": True}, "segments in the summary is true"),
    ({"seed": None}, "seed in the summary is null"),
    ({"buffer_size": "1"}, 'buffer_size in the summary is "1"'),
    ({"dependent_varname": []}, r"dependent_varname in the summary is \[\]"),
    ({"independent_varname": ["y"]}, "cannot be the names of packed columns"),
    ({"independent_varname": ["x" * 60]}, "cannot be the names of packed columns"),
    ({"independent_varname": "x"}, 'independent_varname in the summary is "x"'),
    ({"dependent_vartype": [1]}, r"dependent_vartype in the summary is \[1\]"),
    ({"normalizing_const": 0}, "normalizing_const in the summary is 0"),
    ({"num_classes": [3, 3]}, r"num_classes in the summary is \[3, 3\]"),
    ({"num_classes": ["3"]}, r"num_classes in the summary is \[\"3\"\]"),
    ({"y_class_values": [1]}, r"y_class_values in the summary is \[1\]"),
    ({"class_value_types": None}, "class_value_types in the summary is null"),
    ({"__dist_keys__": [1, 1]}, r"__dist_keys__ in the summary is \[1, 1\]"),
    ({"__dist_keys__": [0, 1 << 20]}, r"__dist_keys__ in the summary is \[0, 1048576\]"),
]


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(("changes", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_summary_that_makes_no_sense_is_refused(trial: Trial, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(psycopg2.Error, match=said):
        trial.sql("SELECT cerebro.create_packed_table('refused', %s)", summary(trial, **changes))
    assert trial.value("SELECT to_regclass('refused') IS NULL")


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("kind", ["nonsense", "int4[]; DROP TABLE blobs", "mood[]"])
def test_classes_of_a_type_that_is_not_the_servers_own_stand_as_text(trial: Trial, kind: str) -> None:
    trial.sql(
        "DROP TABLE IF EXISTS t, t_summary; DROP TYPE IF EXISTS mood; CREATE TYPE mood AS ENUM ('1', '2')"
    )
    trial.sql(
        "SELECT cerebro.create_packed_table('t', %s)",
        summary(trial, class_value_types={"y_class_values": kind}),
    )
    assert trial.value("SELECT pg_typeof(y_class_values)::text FROM t_summary") == "text[]"
