"""madlib_fit_multiple_model: its result tables, its parameters, and the nets and targets that it trains."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import pytest

import nets
import reference
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES = 12
DIVERGING = "loss='mse',optimizer='SGD(lr=1e20)'"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(180, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x[:120], y[:120]))
    trial.table("held_out", "x real[], y integer", rows_of(x[120:], y[120:]))
    trial.pack("blobs", "packed", buffer_size=25)
    trial.pack_validation("held_out", "packed_val", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM, SGD], ["batch_size=16,epochs=1", "batch_size=32,epochs=2"])


@pytest.fixture(scope="module")
def base(trial: Trial, tables: None) -> int:
    """Train with every parameter set, and return the number of the run."""
    return trial.fit(
        "packed", "base", "mst", 5, use_gpus=False, validation_table="packed_val",
        metrics_compute_frequency=2, warm_start=False, name="a name", description="what it is for",
        use_caching=True,
    )  # fmt: skip


def columns(trial: Trial, table: str) -> list[tuple[str, str]]:
    query = (
        "SELECT attname::text, format_type(atttypid, -1) FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    return trial.sql(query, table)


def test_model_table(trial: Trial, base: int) -> None:
    assert columns(trial, "base") == [
        ("mst_key", "integer"),
        ("model_weights", "bytea"),
        ("model_arch", "json"),
        ("__dist_key__", "integer"),
    ]
    rows = trial.sql("SELECT mst_key, length(model_weights), model_arch->>'class_name' FROM base ORDER BY 1")
    parameters = (FEATURES + 1) * 16 + (16 + 1) * 3
    assert rows == [(key, 4 * parameters, "Sequential") for key in (1, 2, 3, 4)]


def test_weights_that_are_too_many_for_the_memory_are_read_in_turns(trial: Trial, base: int) -> None:
    set_bound = (
        "DO $$ from cerebro_plpy.executor.running import output; output.AT_ONCE = %s $$ LANGUAGE plpython3u"
    )
    trial.sql("SELECT cerebro._boot()")
    try:
        trial.sql(set_bound, 1)
        trial.fit("packed", "in_turns", "mst", 5)
    finally:
        trial.sql(set_bound, 64 * 2**20)
    assert trial.weights("in_turns") == trial.weights("base")


def test_info_table(trial: Trial, base: int) -> None:
    floats, texts = "double precision[]", "text[]"
    assert columns(trial, "base_info") == [
        ("mst_key", "integer"), ("model_id", "integer"), ("compile_params", "text"), ("fit_params", "text"),
        ("model_type", "text"), ("model_size", "double precision"), ("metrics_elapsed_time", floats),
        ("metrics_type", texts), ("loss_type", "text"), ("training_metrics_final", "double precision"),
        ("training_loss_final", "double precision"), ("training_metrics", floats), ("training_loss", floats),
        ("validation_metrics_final", "double precision"), ("validation_loss_final", "double precision"),
        ("validation_metrics", floats), ("validation_loss", floats),
        ("status", "text"), ("reason", "text"), ("backend", "text"),
    ]  # fmt: skip
    row = trial.read_row("SELECT * FROM base_info WHERE mst_key = 3")
    selected = trial.read_row("SELECT model_id, compile_params, fit_params FROM mst WHERE mst_key = 3")
    assert {name: row[name] for name in selected} == selected
    said = (
        row["model_type"],
        row["metrics_type"],
        row["loss_type"],
        row["status"],
        row["reason"],
        row["backend"],
    )
    backend = reference.BACKEND
    assert said == ("madlib_keras", ["accuracy"], "categorical_crossentropy", "finished", None, backend)
    assert row["model_size"] == pytest.approx(259 * 4 / 1024)
    assert trial.value(
        "SELECT conkey FROM pg_constraint WHERE conrelid = 'base_info'::regclass AND contype = 'p'"
    ) == [1]


@pytest.mark.parametrize("dataset", ["training", "validation"])
def test_history_in_info(trial: Trial, base: int, dataset: str) -> None:
    """The info table has metrics of epochs 2, 4 and 5: every second epoch and the last."""
    for row in trial.sql(
        f"SELECT {dataset}_metrics, {dataset}_loss, {dataset}_metrics_final, {dataset}_loss_final,"
        " metrics_elapsed_time, mst_key FROM base_info"
    ):
        metrics, losses, metric, loss, elapsed, key = row
        assert len(metrics) == len(losses) == len(elapsed) == 3
        assert (metrics[-1], losses[-1]) == (metric, loss)
        assert elapsed == sorted(elapsed)
        assert all(0 <= value <= 1 for value in metrics)
        viewed = trial.sql(
            "SELECT epoch, value FROM cerebro.metrics WHERE run_id = %s AND mst_key = %s AND dataset = %s"
            " AND metric = 'accuracy' ORDER BY epoch",
            base, key, dataset,
        )  # fmt: skip
        assert viewed == list(zip([2, 4, 5], metrics, strict=True))


def test_summary_table(trial: Trial, base: int) -> None:
    assert columns(trial, "base_summary") == [
        ("source_table", "text"), ("validation_table", "text"), ("model", "text"), ("model_info", "text"),
        ("dependent_varname", "text[]"), ("independent_varname", "text[]"), ("model_arch_table", "text"),
        ("model_selection_table", "text"), ("object_table", "text"), ("num_iterations", "integer"),
        ("metrics_compute_frequency", "integer"), ("warm_start", "boolean"), ("name", "text"),
        ("description", "text"), ("start_training_time", "timestamp without time zone"),
        ("end_training_time", "timestamp without time zone"), ("madlib_version", "text"),
        ("num_classes", "integer[]"), ("y_class_values", "integer[]"), ("dependent_vartype", "text[]"),
        ("normalizing_const", "real"), ("metrics_iters", "integer[]"),
        ("run_id", "bigint"), ("seed", "bigint"), ("segments", "integer"),
        ("qualified_names", "jsonb"), ("feature_specification", "jsonb"),
    ]  # fmt: skip
    row = trial.read_row("SELECT * FROM base_summary")
    assert row["start_training_time"] < row["end_training_time"]
    assert row["madlib_version"].startswith("cerebro ")
    tables = (
        "source_table",
        "validation_table",
        "model",
        "model_info",
        "model_arch_table",
        "model_selection_table",
    )
    names = ["packed", "packed_val", "base", "base_info", "arch", "mst"]
    assert [row[column] for column in tables] == names
    assert row["qualified_names"] == {
        column: f"public.{name}" for column, name in zip(tables, names, strict=True)
    }
    rest = {
        "dependent_varname": ["y"], "independent_varname": ["x"], "object_table": None, "num_iterations": 5,
        "metrics_compute_frequency": 2, "warm_start": False, "name": "a name",
        "description": "what it is for", "num_classes": [3], "y_class_values": [0, 1, 2],
        "dependent_vartype": ["integer"], "normalizing_const": 1.0, "metrics_iters": [2, 4, 5],
        "run_id": base, "seed": 7, "segments": 2,
    }  # fmt: skip
    assert {name: row[name] for name in rest} == rest


def test_it_learns(trial: Trial, base: int) -> None:
    first, last = trial.sql("SELECT min(training_loss[1]), max(training_loss[3]) FROM base_info")[0]
    assert last < first
    assert trial.value("SELECT max(validation_metrics_final) FROM base_info") > 0.5


def test_metrics_are_computed_at_the_end_where_nothing_is_said(trial: Trial) -> None:
    trial.keep("mst_one", "mst", [1])
    trial.fit("packed", "quiet", "mst_one", 3)
    assert trial.value("SELECT metrics_iters FROM quiet_summary") == [3]
    row = trial.read_row("SELECT * FROM quiet_info")
    assert len(row["training_loss"]) == 1
    assert row["validation_loss"] is None


def test_a_seed_that_was_not_given_can_be_used_again(trial: Trial) -> None:
    trial.keep("mst_seed", "mst", [2])
    trial.fit("packed", "drawn", "mst_seed", 1, options={"seed": None})
    seed = trial.value("SELECT seed FROM drawn_summary")
    trial.fit("packed", "again", "mst_seed", 1, options={"seed": seed})
    assert trial.weights("drawn") == trial.weights("again")


@pytest.mark.parametrize("seed", [-5, 0, 2**40])
def test_any_integer_is_a_seed(trial: Trial, seed: int) -> None:
    name = f"seed_{abs(seed)}"
    trial.keep(f"mst_{name}", "mst", [2])
    run_id = trial.fit("packed", name, f"mst_{name}", 1, options={"seed": seed})
    assert trial.value("SELECT seed FROM cerebro.runs WHERE run_id = %s", run_id) == seed


# Warm start


def test_transfer_weights_from_the_architecture_table(trial: Trial) -> None:
    given = np.random.default_rng(3).normal(size=259).astype("<f4").tobytes()
    model = trial.model(nets.mlp(FEATURES), weights=given)
    still = "loss='categorical_crossentropy',optimizer='SGD(lr=1e-30)',metrics=['accuracy']"
    trial.select("transfer_mst", [model], [still], ["batch_size=16,epochs=1", "batch_size=8,epochs=1"])
    trial.fit("packed", "transfer", "transfer_mst", 1)
    assert trial.weights("transfer") == {1: given, 2: given}


# Failures


def test_a_config_that_diverges_is_marked_and_the_others_finish(trial: Trial) -> None:
    trial.select("odd_mst", [1], [SGD, DIVERGING, ADAM], ["batch_size=16,epochs=1"])
    doomed = trial.value("SELECT mst_key FROM odd_mst WHERE compile_params LIKE '%%1e20%%' AND %s", True)
    trial.notices()
    run_id = trial.fit("packed", "odd", "odd_mst", 3)
    warnings = [n for n in trial.notices().splitlines() if n.startswith("WARNING")]
    at_once, at_the_end = warnings
    assert f"config {doomed} failed" in at_once
    assert "no result for 1 config of 3" in at_the_end and f"config {doomed}: the loss" in at_the_end
    rows = dict(trial.sql("SELECT mst_key, status FROM odd_info"))
    assert Counter(rows.values()) == {"finished": 2, "failed": 1}
    assert rows[doomed] == "failed"
    reason = trial.value("SELECT reason FROM odd_info WHERE mst_key = %s", doomed)
    assert "loss became" in reason
    assert doomed not in trial.weights("odd")
    board = trial.sql(
        "SELECT rank, mst_key, failure FROM cerebro.leaderboard WHERE run_id = %s ORDER BY rank", run_id
    )
    assert [row[0] for row in board] == [1, 2, None]
    assert board[2] == (None, doomed, reason)
    row = trial.read_row("SELECT status, failed_configs FROM cerebro.runs WHERE run_id = %s", run_id)
    assert row == {"status": "finished", "failed_configs": 1}
    assert trial.value(
        "SELECT count(*) FROM cerebro.visits WHERE run_id = %s AND mst_key <> %s", run_id, doomed
    ) == 2 * 3 * 2  # fmt: skip


def test_a_run_all_of_whose_configs_fail_still_says_so(trial: Trial) -> None:
    trial.select("doomed_mst", [1], [DIVERGING], ["batch_size=16,epochs=1"])
    run_id = trial.fit("packed", "doomed", "doomed_mst", 2)
    assert trial.sql("SELECT status, training_loss FROM doomed_info") == [("failed", None)]
    assert trial.weights("doomed") == {}
    row = trial.read_row(
        "SELECT status, failed_configs, detail, ended_at IS NULL AS goes_on FROM cerebro.runs"
        " WHERE run_id = %s", run_id,
    )  # fmt: skip
    assert "its only config failed: the loss became" in row.pop("detail")
    assert row == {"status": "failed", "failed_configs": 1, "goes_on": False}
    assert trial.sql("SELECT rank FROM cerebro.leaderboard WHERE run_id = %s", run_id) == [(None,)]
    assert trial.value("SELECT status FROM cerebro.progress WHERE run_id = %s", run_id) == "failed"
    assert trial.value("SELECT cerebro.wait(%s)", run_id) == "failed"
    with pytest.raises(psycopg2.Error, match="has ended: each of its configs failed"):
        trial.sql("SELECT cerebro.resume(%s)", run_id)


# Kinds of nets, targets and losses


def run_one(
    trial: Trial, name: str, packed: str, model: int, compile_params: str, **more: Any
) -> dict[str, Any]:
    """Train one config for two epochs, and return its row of the info table."""
    fit_params = more.pop("fit_params", "batch_size=16,epochs=1")
    trial.select(f"{name}_mst", [model], [compile_params], [fit_params])
    trial.fit(packed, name, f"{name}_mst", 2, metrics_compute_frequency=1, **more)
    row = trial.read_row(f"SELECT * FROM {name}_info")
    assert (row["status"], row["reason"]) == ("finished", None)
    return row


def test_regression(trial: Trial) -> None:
    trial.sql("CREATE TABLE measured AS SELECT x, (x[1] - 2 * x[2])::float8 AS size FROM blobs")
    trial.pack("measured", "measured_packed", y="size")
    model = trial.model(nets.mlp(FEATURES, outputs=1, activation="linear"))
    row = run_one(
        trial, "regression", "measured_packed", model, "loss='mse',optimizer='Adam(lr=0.01)',metrics=['mae']"
    )
    assert row["training_loss"][1] < row["training_loss"][0]
    assert (row["metrics_type"], row["loss_type"]) == (["mae"], "mse")
    assert trial.value("SELECT size_class_values FROM regression_summary") is None


def test_regression_on_arrays(trial: Trial) -> None:
    trial.sql("CREATE TABLE pairs AS SELECT x, x[3:4] AS pair FROM blobs")
    trial.pack("pairs", "pairs_packed", y="pair", options={"task": "regression"})
    model = trial.model(nets.mlp(FEATURES, outputs=2, activation="linear"))
    row = run_one(trial, "vectors", "pairs_packed", model, "loss='huber',optimizer='Adam(lr=0.01)'")
    assert row["training_loss"][1] < row["training_loss"][0]
    assert row["metrics_type"] is None
    assert row["training_metrics"] is None


def test_sparse_loss_equals_the_one_hot_loss(trial: Trial, base: int) -> None:
    """The sparse and the one-hot loss are equal, and use the same stored labels."""
    sparse = "loss='sparse_categorical_crossentropy',optimizer='SGD(lr=0.1)',metrics=['accuracy']"
    row = run_one(trial, "sparse", "packed", 1, sparse)
    other = run_one(trial, "dense", "packed", 1, SGD)
    assert row["training_loss"] == pytest.approx(other["training_loss"], abs=1e-5)
    assert row["training_metrics"] == pytest.approx(other["training_metrics"], abs=1e-5)


def test_binary_classes_with_one_sigmoid(trial: Trial) -> None:
    trial.sql("CREATE TABLE yes_no AS SELECT x, y = 1 AS yes FROM blobs")
    trial.pack("yes_no", "yes_no_packed", y="yes")
    model = trial.model(nets.mlp(FEATURES, outputs=1, activation="sigmoid"))
    row = run_one(
        trial, "binary", "yes_no_packed", model,
        "loss='binary_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy', 'AUC']",
    )  # fmt: skip
    assert 0.3 < row["training_metrics_final"] <= 1
    assert row["training_loss"][1] < row["training_loss"][0]


def test_several_inputs_and_outputs(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE two_of_each AS SELECT x[1:5] AS a, x[6:12] AS b, y AS kind,"
        " (x[1] + x[6])::float8 AS size FROM blobs"
    )
    trial.pack("two_of_each", "both_packed", y="kind,size", x="a,b")
    model = trial.model(nets.two_by_two([5, 7], 3))
    row = run_one(
        trial, "several", "both_packed", model,
        "loss={'kind':'categorical_crossentropy','size':'mse'},optimizer='Adam(lr=0.01)',"
        "metrics={'kind':['accuracy'],'size':['mae']},loss_weights={'kind':1.0,'size':0.5}",
    )  # fmt: skip
    assert row["training_loss"][1] < row["training_loss"][0]
    names = trial.sql(
        "SELECT DISTINCT metric FROM cerebro.metrics WHERE run_id = (SELECT run_id FROM several_summary)"
    )
    assert {"loss", "kind_loss", "size_loss", "kind_accuracy", "size_mae"} == {name for (name,) in names}
    assert trial.value("SELECT num_classes FROM several_summary") == [3, None]
    run_one(
        trial, "alike", "both_packed", model,
        "loss={'kind':'categorical_crossentropy','size':'mse'},optimizer='Adam(lr=0.01)',metrics=['mae']",
    )  # fmt: skip
    names = trial.sql(
        "SELECT DISTINCT metric FROM cerebro.metrics WHERE run_id = (SELECT run_id FROM alike_summary)"
    )
    assert {"loss", "kind_loss", "size_loss", "kind_mae", "size_mae"} == {name for (name,) in names}


def test_rows_in_their_own_order(trial: Trial) -> None:
    row = run_one(trial, "unshuffled", "packed", 1, SGD, fit_params="batch_size=16,epochs=1,shuffle=False")
    assert row["training_loss"][1] < row["training_loss"][0]
    assert trial.weights("unshuffled") != trial.weights("dense")


# Existing tables and kept rows, and the places from which a call is made


def test_rows_that_changed_are_read_again(trial: Trial) -> None:
    """Sessions that keep the rows of an earlier run read a packed table again if it has changed."""
    trial.keep("again_mst", "mst", [2])
    trial.pack("blobs", "moving")
    trial.fit("moving", "moved_1", "again_mst", 1)
    trial.sql("DROP TABLE moving, moving_summary")
    trial.pack("held_out", "moving")
    trial.pack("held_out", "still")
    trial.fit("moving", "moved_2", "again_mst", 1)
    trial.fit("still", "moved_3", "again_mst", 1)
    assert trial.weights("moved_1") != trial.weights("moved_2") == trial.weights("moved_3")
    trial.sql(
        "UPDATE moving SET y = (SELECT y FROM moving m WHERE m.__dist_key__ <> moving.__dist_key__ LIMIT 1)"
    )
    trial.fit("moving", "moved_4", "again_mst", 1)
    assert trial.weights("moved_4") != trial.weights("moved_2")


def topology(trial: Trial, out: str) -> str:
    return trial.value(f"SELECT topology FROM cerebro.runs WHERE run_id = (SELECT run_id FROM {out}_summary)")


def test_a_do_block_and_a_function_can_train(trial: Trial) -> None:
    trial.keep("block_mst", "mst", [2])
    call = (
        "cerebro.madlib_fit_multiple_model('packed', '{}', 'block_mst', 1,"
        " options => jsonb_build_object('threads', 1, 'seed', 7))"
    )
    trial.sql(f"DO $$BEGIN PERFORM {call.format('in_block')}; END$$")
    body = f"SELECT {call.format('in_function')}"
    trial.sql(f"CREATE FUNCTION train() RETURNS void LANGUAGE sql AS $${body}$$; SELECT train()")
    trial.fit("packed", "in_call", "block_mst", 1)
    assert trial.weights("in_block") == trial.weights("in_function") == trial.weights("in_call")
    assert {topology(trial, out) for out in ("in_block", "in_function", "in_call")} == {trial.topology}


@pytest.mark.parametrize(
    ("begin", "expected"), [("BEGIN", "usual"), ("BEGIN ISOLATION LEVEL REPEATABLE READ", "inline")]
)
def test_a_transaction_that_is_rolled_back_leaves_no_tables(trial: Trial, begin: str, expected: str) -> None:
    trial.keep(f"mst_{expected}", "mst", [2])
    trial.sql(begin)
    trial.fit("packed", "undone", f"mst_{expected}", 1)
    found, weights = topology(trial, "undone"), trial.weights("undone")
    trial.sql("ROLLBACK")
    assert found == {"usual": trial.topology}.get(expected, expected)
    assert trial.value("SELECT to_regclass('undone')") is None
    trial.fit("packed", f"done_{expected}", f"mst_{expected}", 1)
    assert trial.weights(f"done_{expected}") == weights


def test_a_savepoint_survives_a_call_that_fails(trial: Trial) -> None:
    trial.keep("mst_savepoint", "mst", [2])
    trial.sql("BEGIN")
    trial.sql("SAVEPOINT before")
    with pytest.raises(psycopg2.Error):
        trial.fit("packed", "base", "missing_mst", 1)
    trial.sql("ROLLBACK TO before")
    trial.fit("packed", "after_savepoint", "mst_savepoint", 1)
    trial.sql("COMMIT")
    assert sorted(trial.weights("after_savepoint")) == [2]


def test_fewer_rows_than_a_batch(trial: Trial) -> None:
    trial.sql("CREATE TABLE few AS SELECT * FROM blobs LIMIT 5")
    trial.pack("few", "few_packed", num_classes=[3])
    trial.keep("few_mst", "mst", [3])
    trial.fit("few_packed", "from_few", "few_mst", 2)
    query = "SELECT DISTINCT segment, rows FROM cerebro.visits WHERE run_id = %s"
    rows = trial.sql(query, trial.value("SELECT run_id FROM from_few_summary"))
    assert sorted(rows) == [(0, 3), (1, 2)]


@pytest.mark.alone
def test_more_segments_than_sessions(trial: Trial) -> None:
    """A limit of two sessions for three segments changes neither the bits nor the visits."""
    trial.pack("blobs", "in_three", options={"segments": 3})
    trial.keep("three_mst", "mst", [1, 2])
    trial.fit("in_three", "without_bound", "three_mst", 2)
    trial.sql("INSERT INTO cerebro.settings VALUES ('sessions', '2')")
    run_id = trial.fit("in_three", "bounded", "three_mst", 2)
    trial.sql("DELETE FROM cerebro.settings")
    assert trial.weights("bounded") == trial.weights("without_bound")
    visits = trial.sql("SELECT mst_key, epoch, segment, pid FROM cerebro.visits WHERE run_id = %s", run_id)
    assert sorted(row[:3] for row in visits) == list(itertools.product((1, 2), (1, 2), range(3)))
    # On Greenplum a session has a process of its own on each segment.
    assert len({pid for *_, pid in visits}) == (3 if trial.topology == "greenplum" else 2)


# Against Keras' own evaluate


METRICS: list[Any] = [
    "accuracy",
    ["AUC", {"name": "auc"}],
    ["Precision", {"name": "precision"}],
    ["Recall", {"class_id": 1, "name": "recall"}],
    ["TopKCategoricalAccuracy", {"k": 2, "name": "top_2"}],
    ["F1Score", {"average": "macro", "name": "f1"}],
    ["MeanSquaredError", {"name": "mse"}],
]
METRIC_TEXT = (
    "['accuracy', AUC(name='auc'), Precision(name='precision'), Recall(class_id=1, name='recall'),"
    " TopKCategoricalAccuracy(k=2, name='top_2'), F1Score(average='macro', name='f1'),"
    " MeanSquaredError(name='mse')]"
)


def packed_rows(trial: Trial, packed: str) -> tuple[dict[str, np.ndarray], list[int]]:
    """Return the arrays in a packed table's buffers by name, and the number of buffers of each segment."""
    found, counts = {}, Counter()
    for segment, x, y in trial.buffers(packed):
        place = f"{segment}_{counts[segment]}"
        found |= {f"x_{place}": x, f"y_{place}": y}
        counts[segment] += 1
    return found, [counts[segment] for segment in sorted(counts)]


@pytest.mark.slow
def test_metrics_and_class_weight_are_those_of_plain_keras(trial: Trial) -> None:
    compile_params = f"loss='categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics={METRIC_TEXT}"
    trial.select(
        "measured_mst", [1], [compile_params],
        ["batch_size=16,epochs=1", "batch_size=16,epochs=1,class_weight={0: 2.0, 2: 0.5}"],
    )  # fmt: skip
    run_id = trial.fit("packed", "measured_models", "measured_mst", 2)
    rows, buffers = packed_rows(trial, "packed")
    texts = dict(trial.sql("SELECT mst_key, fit_params FROM measured_mst"))
    configs = [
        reference.Config(
            key, nets.mlp(FEATURES), ["Adam", {"learning_rate": 0.01}], "categorical_crossentropy", 16,
            metrics=METRICS, class_weight={0: 2.0, 2: 0.5} if "class_weight" in text else None,
        )
        for key, text in texts.items()
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        plain = reference.run(reference.Job(reference.BACKEND, 7, 2, buffers, configs), rows, Path(folder))
    assert trial.weights("measured_models") == plain.weights
    for key, expected in plain.evaluations.items():
        found = dict(
            trial.sql(
                "SELECT metric, value FROM cerebro.metrics WHERE run_id = %s AND mst_key = %s", run_id, key
            )
        )
        assert found == pytest.approx(expected, abs=1e-5)
        assert all(math.isfinite(value) for value in found.values())
