"""Registered losses, metrics and layers, in every call that can name them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import psycopg2
import psycopg2.errors
import pytest

import nets
from trial import Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES = 12
BACKENDS = ["jax", pytest.param("tensorflow", marks=pytest.mark.tensorflow)]
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


LAYER = """
import keras
from keras import ops

class Scaled(keras.layers.Layer):
    def __init__(self, units=4, by=1.0, **kwargs):
        super().__init__(**kwargs)
        self.units, self.by = units, by

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units), initializer="glorot_uniform")

    def call(self, inputs):
        return ops.relu(ops.matmul(inputs, self.kernel)) * self.by
"""
METRICS = """
import keras
from keras import ops

def my_error(y_true, y_pred):
    return ops.mean(ops.abs(y_true - y_pred), axis=-1)

class MyScore(keras.metrics.Metric):
    def __init__(self, name="other", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(ops.sum(ops.abs(y_true - y_pred)))
        self.count.assign_add(ops.cast(ops.size(y_true), "float32"))

    def result(self):
        return self.total / self.count
"""


def with_layer(name: str = "Scaled", **config: object) -> str:
    """Return the JSON of a net in which one layer has the custom class `name`."""
    model = json.loads(nets.mlp(FEATURES))
    model["config"]["layers"][1] = {
        "module": "__main__",
        "class_name": name,
        "config": {"name": "mine", "trainable": True, "units": 8, **config},
        "registered_name": f"Custom>{name}",
    }
    return json.dumps(model)


def register(trial: Trial, name: str, source: str, kind: str = "loss", **more: object) -> int:
    named = "".join(f", {key} => %s" for key in more)
    return trial.value(
        f"SELECT cerebro.register_function(%s, %s, %s{named})", name, source, kind, *more.values()
    )


def undo(trial: Trial, run_id: int, after: int) -> None:
    """Delete the visits and states of a run after step `after`, and all of its metrics."""
    for table in ("_visit", "_state"):
        trial.sql(f"DELETE FROM cerebro.{table} WHERE run_id = %s AND step > %s", run_id, after)
    for table in ("_metric", "_evaluation"):
        trial.sql(f"DELETE FROM cerebro.{table} WHERE run_id = %s", run_id)


def unfinished(trial: Trial, out: str, mst: str, epochs: int, backend: str, after: int) -> int:
    """Return the number of a run without result tables, whose configs have made `after` visits."""
    trial.sql("BEGIN")
    run_id = trial.fit("packed", out, mst, epochs, options={"backend": backend})
    trial.sql("ROLLBACK")
    undo(trial, run_id, after)
    return run_id


@pytest.fixture(scope="module")
def mine(trial: Trial, tables: None) -> str:
    """Make a selection of one config, whose registered loss has the source of Keras' mse; return its name."""
    assert register(trial, "my_loss", LOSS) == 1
    trial.select("mine", [1], [MINE], [FITTED])
    trial.select("theirs", [1], [SGD], [FITTED])
    return "mine"


@pytest.mark.parametrize(
    "backend",
    [pytest.param("tensorflow", marks=pytest.mark.tensorflow), pytest.param("jax", marks=pytest.mark.slow)],
)
def test_a_registered_loss_trains_to_the_bits_of_keras_own(trial: Trial, mine: str, backend: str) -> None:
    trial.fit("packed", f"own_{backend}", mine, 2, options={"backend": backend})
    trial.fit("packed", f"keras_{backend}", "theirs", 2, options={"backend": backend})
    assert trial.weights(f"own_{backend}") == trial.weights(f"keras_{backend}")
    facts = [trial.read_row(f"SELECT * FROM {out}_{backend}_info") for out in ("own", "keras")]
    assert facts[0]["training_loss"] == facts[1]["training_loss"]
    assert [fact["loss_type"] for fact in facts] == ["my_loss", "mse"]
    assert facts[0]["compile_params"] == MINE


@pytest.mark.slow
def test_a_run_keeps_its_version_until_its_end(trial: Trial, mine: str) -> None:
    """A resumed run uses the function's version with which it began; a new run uses the newest version."""
    trial.fit("packed", "whole", mine, 2, options={"backend": "jax"})
    run_id = unfinished(trial, "kept", mine, 2, "jax", 1)
    assert register(trial, "my_loss", OTHER) == 2
    trial.sql("SELECT cerebro.resume(%s)", run_id)
    assert trial.weights("kept") == trial.weights("whole")
    trial.fit("packed", "newer", mine, 2, options={"backend": "jax"})
    assert trial.weights("newer") != trial.weights("whole")
    assert register(trial, "my_loss", LOSS) == 3


def test_a_warm_start_and_an_evaluation_use_the_version_of_the_run(trial: Trial, mine: str) -> None:
    trial.fit("packed", "long", mine, 2, options={"backend": "jax"})
    trial.fit("packed", "warm", mine, 1, options={"backend": "jax"})
    trial.fit("packed", "cold", mine, 1, options={"backend": "jax"})
    before = trial.value("SELECT training_loss_final FROM cold_info")
    version = register(trial, "my_loss", OTHER)
    trial.fit("packed", "warm", mine, 1, options={"backend": "jax"}, warm_start=True)
    assert trial.weights("warm") == trial.weights("long")
    trial.sql("SELECT cerebro.madlib_evaluate('cold', 'packed', 'measured', FALSE, 1)")
    assert trial.value("SELECT loss FROM measured") == pytest.approx(before, rel=1e-4)
    trial.sql("SELECT cerebro.forget(%s)", trial.value("SELECT run_id FROM cold_summary"))
    trial.sql("SELECT cerebro.madlib_evaluate('cold', 'packed', 'measured_anew', FALSE, 1)")
    assert trial.value("SELECT loss FROM measured_anew") == pytest.approx(2 * before, rel=1e-4)
    assert register(trial, "my_loss", LOSS) == version + 1
    assert register(trial, "my_loss", LOSS) == version + 1


def test_what_is_unregistered_is_gone_for_runs_too(trial: Trial) -> None:
    register(trial, "passing", LOSS.replace("my_loss", "passing"))
    trial.select("pass_mst", [1], [MINE.replace("my_loss", "passing")], [FITTED])
    run_id = unfinished(trial, "passed", "pass_mst", 1, "jax", 0)
    trial.sql("SELECT cerebro.unregister_function('passing')")
    for call in ("cerebro.unregister_function('passing')", "cerebro.grant_function('passing', 'public')"):
        with pytest.raises(psycopg2.errors.UndefinedObject):
            trial.sql(f"SELECT {call}")
    with pytest.raises(psycopg2.Error, match="which has been unregistered since"):
        trial.sql("SELECT cerebro.resume(%s)", run_id)
    with pytest.raises(psycopg2.Error, match="unknown loss passing"):
        trial.fit("packed", "passed", "pass_mst", 1)
    assert not trial.sql("SELECT FROM cerebro.functions WHERE name = 'passing'")
    assert register(trial, "passing", LOSS.replace("my_loss", "passing"), description="back again") == 3
    trial.sql("SELECT cerebro.resume(%s)", run_id)
    assert trial.value("SELECT status FROM passed_info") == "finished"


def test_public_is_everybody_but_a_role_of_such_a_name(trial: Trial) -> None:
    register(trial, "granted", LOSS.replace("my_loss", "granted"))
    grants = "SELECT role::oid = 0, role::text FROM cerebro._function_grant WHERE name = 'granted'"
    try:
        trial.sql('CREATE ROLE "Public"')
        trial.sql("SELECT cerebro.grant_function('granted', 'Public')")
        assert trial.sql(grants) == [(False, '"Public"')]
        trial.sql("SELECT cerebro.revoke_function('granted', 'Public')")
    finally:
        trial.sql('DROP ROLE IF EXISTS "Public"')
    trial.sql("SELECT cerebro.grant_function('granted', 'PUBLIC')")
    assert [everybody for everybody, _ in trial.sql(grants)] == [True]


@pytest.mark.parametrize("backend", BACKENDS)
def test_metrics_of_ones_own(trial: Trial, mine: str, backend: str) -> None:
    register(trial, "my_error", METRICS, "metric")
    register(trial, "MyScore", METRICS, "metric", higher_is_better=True)
    compiled = MINE.replace("['accuracy']", "[{0},'mae','my_loss']")
    trial.sql("DROP TABLE IF EXISTS metric_mst, metric_mst_summary")
    trial.select("metric_mst", [1], [compiled.format("'MyScore'"), compiled.format("my_error()")], [FITTED])
    out = f"metrics_{backend}"
    run_id = trial.fit("packed", out, "metric_mst", 1, options={"backend": backend})
    found = trial.sql(
        "SELECT mst_key, metric, value, higher_is_better FROM cerebro.metrics"
        " WHERE run_id = %s ORDER BY mst_key", run_id,
    )  # fmt: skip
    for key, own, better in ((1, "MyScore", True), (2, "my_error", False)):
        rows = {metric: (value, higher) for mst_key, metric, value, higher in found if mst_key == key}
        assert set(rows) == {"loss", own, "mean_absolute_error", "my_loss"} or "mae" in rows
        mae = rows.get("mae") or rows["mean_absolute_error"]
        assert rows[own] == (pytest.approx(mae[0], rel=1e-4), better)
        assert rows["my_loss"] == (pytest.approx(rows["loss"][0], rel=1e-4), False)
    assert trial.sql(f"SELECT metrics_type[1] FROM {out}_info ORDER BY 1") == [("MyScore",), ("my_error",)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_layer_of_ones_own(trial: Trial, backend: str) -> None:
    """A stored model names the version of its layer, and each call on the model uses this version."""
    name = f"Scaled{backend.title()}"
    source = LAYER.replace("Scaled", name)
    register(trial, name, source, "layer")
    model_id = trial.model(with_layer(name))
    trial.select(f"{name}_mst", [model_id], [SGD], [FITTED])
    trial.fit("packed", name, f"{name}_mst", 2, options={"backend": backend})
    arch = trial.value(f"SELECT model_arch FROM {name}")
    digest = trial.value("SELECT digest FROM cerebro.functions WHERE name = %s", name)
    assert f"cerebro>{name}@{digest}" in json.dumps(arch)
    loss = trial.value(f"SELECT training_loss_final FROM {name}_info")
    register(trial, name, source.replace("* self.by", "* self.by * 0.0"), "layer")
    trial.sql(f"SELECT cerebro.madlib_evaluate('{name}', 'packed', '{name}_eval', FALSE, 1)")
    assert trial.value(f"SELECT loss FROM {name}_eval") == pytest.approx(loss, rel=1e-4)
    trial.fit("packed", f"{name}_new", f"{name}_mst", 2, options={"backend": backend})
    assert trial.value(f"SELECT training_loss_final FROM {name}_new_info") != loss
    trial.call("load_keras_model", f"{name}_arch", json.dumps(arch))
    assert trial.sql(f"SELECT model_id FROM {name}_arch") == [(1,)]


def test_predictions_with_a_layer_of_ones_own(trial: Trial) -> None:
    trial.sql("CREATE TABLE rows AS SELECT row_number() OVER () AS id, x FROM blobs LIMIT 20")
    trial.sql(
        "SELECT cerebro.madlib_predict('ScaledJax', 'rows', 'id', 'x', 'predicted', 'response', mst_key => 1)"
    )
    assert trial.value("SELECT count(*) FROM predicted") == 20
    weights = trial.weights("ScaledJax")[1]
    trial.call(
        "load_keras_model",
        "ScaledJax_arch",
        json.dumps(trial.value("SELECT model_arch FROM ScaledJax")),
        weights,
    )
    trial.sql(
        "SELECT cerebro.madlib_keras_predict_byom('ScaledJax_arch', 2, 'rows', 'id', 'x', 'predicted_byom',"
        " pred_type => 'response')"
    )
    same = "SELECT count(*) FROM predicted AS p JOIN predicted_byom AS b USING (id)"
    same += " WHERE abs(p.prob - b.prob) < 1e-6"
    assert trial.value(same) == 20


@pytest.mark.postgresql
def test_one_row_with_a_layer_of_ones_own(trial: Trial) -> None:
    asked = "SELECT (cerebro.predict('ScaledJax', 1, x::float8[])).probability FROM rows ORDER BY id"
    found = [value for (value,) in trial.sql(asked)]
    assert found == pytest.approx(
        [v for (v,) in trial.sql("SELECT prob FROM predicted ORDER BY id")], abs=1e-5
    )


FAULTS = {
    "raises": "def raises(y_true, y_pred):\n    x = 1\n    raise ValueError('no such luck')\n",
    "exits": "import sys\ndef exits(y_true, y_pred):\n    sys.exit(3)\n",
    "shapeless": "def shapeless(y_true, y_pred):\n    return y_pred[:, 99]\n",
    "forgets": "def forgets(y_true, y_pred):\n    pass\n",
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_that_fails_fails_its_config_alone(trial: Trial, mine: str, backend: str) -> None:
    for name, source in FAULTS.items():
        register(trial, name, source)
    trial.sql("DROP TABLE IF EXISTS fault_mst, fault_mst_summary")
    configs = [
        SGD,
        *(MINE.replace("my_loss", name) for name in FAULTS),
        SGD.replace("'accuracy'", "'raises'"),
    ]
    trial.select("fault_mst", [1], configs, [FITTED])
    out = f"faults_{backend}"
    trial.fit("packed", out, "fault_mst", 1, options={"backend": backend})
    found = dict(trial.sql(f"SELECT mst_key, reason FROM {out}_info WHERE status = 'failed'"))
    assert set(found) >= {2, 3, 5, 6}
    assert "no such luck" in found[2] and "no such luck" in found[6]
    assert "(line 3 of raises)" in found[2]
    assert trial.value(f"SELECT status FROM {out}_info WHERE mst_key = 1") == "finished"


@pytest.mark.parametrize(("name", "source", "kind", "code", "text"), [
    ("my_l", "def my_l(a, b)\n  return a", "loss", "22023", "line 1"),
    ("my_l", "x = 1\n\nraise OSError('gone')", "loss", "22023", "OSError in line 3: gone"),
    ("my_l", "import sys; sys.exit('off')", "loss", "22023", "SystemExit in line 1: off"),
    ("my_l", "def other(a, b): pass", "loss", "22023", "does not define my_l"),
    ("my_l", "my_l = 3", "loss", "42809", "is not what a loss is made of"),
    ("my_l", "def my_l(a): pass", "layer", "42809", "is not what a layer is made of"),
    ("my_l", "from keras import Model as my_l", "layer", "42809", "is not what a layer is made of"),
    ("my_l", "(" * 500, "loss", "22023", "does not run"),
    ("my_l", "#" * 1_000_001, "loss", "22023", "longer than 1000000"),
    ("my_l", "def my_l(a, b): pass", "optimizer", "22023", "loss, metric, layer"),
    (None, "def my_l(a, b): pass", "loss", "22004", "cannot be NULL"),
    ("my_l", None, "loss", "22004", "cannot be NULL"),
    ("a b", "x = 1", "loss", "22023", "cannot be the name"),
    ("class", "x = 1", "loss", "22023", "cannot be the name"),
    ("_l", "x = 1", "loss", "22023", "cannot be the name"),
    ("l" * 64, "x = 1", "loss", "22023", "cannot be the name"),
    ("l\u00e9", "x = 1", "loss", "22023", "cannot be the name"),
    ('l"; DROP', "x = 1", "loss", "22023", "cannot be the name"),
    *((name, f"def {name}(a, b): pass", "loss", "42710", "is a name of Keras' or") for name in (
        "mse", "MSE", "Adam", "adam", "dense", "Dense", "binary_crossentropy", "BinaryCrossEntropy", "loss",
        "accuracy", "acc", "top_3_accuracy", "relu", "Sequential", "quantile", "pinball", "GlorotUniform",
        "L2", "ExponentialDecay", "none_", "ops", "huber_loss", "logcosh",
    )),
])  # fmt: skip
def test_what_cannot_be_registered(
    trial: Trial, name: str | None, source: str | None, kind: str, code: str, text: str
) -> None:
    before = trial.value("SELECT count(*) FROM cerebro._function")
    with pytest.raises(psycopg2.Error) as raised:
        trial.sql("SELECT cerebro.register_function(%s, %s, %s)", name, source, kind)
    assert raised.value.pgcode == code
    assert text in str(raised.value)
    assert trial.value("SELECT count(*) FROM cerebro._function") == before


def test_a_function_keeps_its_kind(trial: Trial, mine: str) -> None:
    with pytest.raises(psycopg2.errors.DuplicateObject, match="is registered as a loss"):
        register(trial, "my_loss", LOSS, "metric")


@pytest.mark.parametrize(("compiled", "text"), [
    ("optimizer='SGD()',loss=my_loss(power=2)", "unexpected keyword argument 'power'"),
    ("optimizer='SGD()',loss=my_loss(scale=Adam())", "made of constants"),
    ("optimizer='SGD()',loss='My_Loss'", "unknown loss My_Loss"),
    ("optimizer=my_loss(),loss='mse'", "invalid optimizer name: my_loss"),
    ("optimizer='SGD()',loss='mse',metrics=['missing']", "unknown metric missing"),
])  # fmt: skip
def test_what_a_config_cannot_say(trial: Trial, mine: str, compiled: str, text: str) -> None:
    trial.sql("DROP TABLE IF EXISTS wrong_mst, wrong_mst_summary")
    with pytest.raises(psycopg2.Error, match=text):
        trial.select("wrong_mst", [1], [compiled], [FITTED])
        trial.fit("packed", "wrong", "wrong_mst", 1)


def test_a_function_of_this_very_transaction(trial: Trial) -> None:
    """No other session can see a function of an open transaction, so the caller's session trains."""
    trial.sql("BEGIN")
    try:
        register(trial, "fresh", LOSS.replace("my_loss", "fresh"))
        trial.select("fresh_mst", [1], [MINE.replace("my_loss", "fresh")], [FITTED])
        trial.notices()
        trial.fit("packed", "freshly", "fresh_mst", 1, options={"backend": "jax"})
        assert "uses only this session" in trial.notices()
        assert trial.value("SELECT status FROM freshly_info") == "finished"
    finally:
        trial.sql("ROLLBACK")
    assert not trial.sql("SELECT FROM cerebro.functions WHERE name = 'fresh'")


def test_a_search_names_functions(trial: Trial, mine: str) -> None:
    trial.sql(
        "SELECT cerebro.madlib_automl('packed', 'searched', 'arch', 'searched_mst', ARRAY[1],"
        " $${'loss': ['my_loss', 'mse'], 'metrics': ['my_error'],"
        " 'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.1, 0.01]}]}$$,"
        " $${'batch_size': [16]}$$, 'hyperband', 'R=2, eta=2', random_state => 3,"
        ' options => \'{"backend": "jax", "threads": 1}\')'
    )
    assert trial.value("SELECT count(*) FROM searched_info WHERE status = 'failed'") == 0
    run_id = trial.value("SELECT run_id FROM searched_summary")
    assert trial.value("SELECT count(*) FROM cerebro._run_function WHERE run_id = %s", run_id) == 2


@pytest.mark.slow
@pytest.mark.postgresql
def test_configs_that_come_in_later_name_functions(trial: Trial, mine: str) -> None:
    """Configs added to a run use its versions of its functions, and the newest versions of others."""
    register(trial, "my_loss", OTHER)
    trial.sql(
        "SELECT cerebro.madlib_fit_multiple_model('packed', 'steered', 'mine', 100000, options =>"
        ' \'{"backend": "jax", "threads": 1, "seed": 7, "background": true}\')'
    )
    run_id = trial.value("SELECT cerebro.last_run()")
    register(trial, "my_loss", LOSS)
    register(trial, "late", LOSS.replace("my_loss", "late"))
    trial.select("late_mst", [1], [MINE.replace("'my_loss'", "late(scale=1)"), MINE], [FITTED])
    keys = [key for (key,) in trial.sql("SELECT cerebro.add_configs(%s, 'late_mst')", run_id)]
    for key in keys:
        trial.sql("SELECT cerebro.set_epochs(%s, %s, 1)", run_id, key)
    query = "SELECT mst_key, value FROM cerebro.metrics WHERE run_id = %s AND metric = 'loss' AND epoch = 1"
    trial.sql("SELECT cerebro.stop_config(%s, 1)", run_id)
    trial.sql("SELECT cerebro.wait(%s, '2 min')", run_id)
    ended = trial.sql("SELECT status, detail FROM cerebro.runs WHERE run_id = %s", run_id)
    assert ended == [("finished", None)]
    found = dict(trial.sql(query, run_id))
    assert set(keys) <= set(found)
    assert trial.value("SELECT count(*) FROM cerebro._run_function WHERE run_id = %s", run_id) == 2
    assert trial.value("SELECT count(*) FROM steered_info WHERE status = 'failed'") == 0


def test_object_tables_are_lists(trial: Trial, mine: str) -> None:
    trial.sql("SELECT cerebro.load_top_k_accuracy_function('objects', 2)")
    trial.sql("SELECT cerebro.load_top_k_accuracy_function('objects', 3)")
    with pytest.raises(psycopg2.errors.DuplicateObject, match="Function 'top_3_accuracy' already exists in"):
        trial.sql("SELECT cerebro.load_top_k_accuracy_function('objects', 3)")
    assert trial.sql("SELECT id, name, object FROM objects ORDER BY id") == [
        (1, "top_2_accuracy", None), (2, "top_3_accuracy", None),
    ]  # fmt: skip
    trial.sql("SELECT cerebro.update_custom_function_table('objects')")
    compiled = "optimizer='SGD(lr=0.1)',loss='categorical_crossentropy',metrics=['top_2_accuracy']"
    trial.sql(
        "SELECT cerebro.load_model_selection_table('arch', 'listed_mst', ARRAY[1], ARRAY[%s], ARRAY[%s],"
        " 'objects')",
        compiled, FITTED,
    )  # fmt: skip
    trial.fit("packed", "listed", "listed_mst", 1, options={"backend": "jax"})
    assert trial.sql("SELECT object_table FROM listed_summary") == [("public.objects",)]
    assert trial.sql("SELECT metrics_type FROM listed_info") == [(["top_2_accuracy"],)]
    trial.sql("SELECT cerebro.delete_custom_function('objects', 1)")
    trial.sql("SELECT cerebro.delete_custom_function('objects', 'top_3_accuracy')")
    assert trial.value("SELECT to_regclass('objects')") is None


def test_what_dill_has_serialized(trial: Trial, mine: str, tmp_path: Path) -> None:
    dill = pytest.importorskip("dill", reason="needs dill here, to make what the server gets")
    if not trial.server_has("dill"):
        pytest.skip("needs dill on the server")
    file = tmp_path / "own.py"
    file.write_text(LOSS.replace("my_loss", "pickled"))
    serialized = dill.dumps(runpy.run_path(str(file))["pickled"], recurse=True)
    trial.sql("SELECT cerebro.load_custom_function('pickles', %s, 'pickled', 'mse')", serialized)
    (row,) = trial.sql("SELECT name, description, object FROM pickles")
    assert (*row[:2], bytes(row[2])) == ("pickled", "mse", serialized)
    assert "dill.loads" in trial.value("SELECT source FROM cerebro.functions WHERE name = 'pickled'")
    trial.select("pickle_mst", [1], [MINE.replace("my_loss", "pickled")], [FITTED])
    trial.fit("packed", "pickled", "pickle_mst", 1, options={"backend": "jax"})
    trial.fit("packed", "unpickled", "theirs", 1, options={"backend": "jax"})
    assert trial.weights("pickled") == trial.weights("unpickled")
    with pytest.raises(psycopg2.Error, match="UnpicklingError in line 5"):
        trial.sql("SELECT cerebro.load_custom_function('pickles', 'rubbish', 'rubbish')")
    assert trial.value("SELECT count(*) FROM pickles") == 1


@pytest.mark.parametrize(("call", "code"), [
    ("load_top_k_accuracy_function('o', 0)", "22023"), ("load_top_k_accuracy_function('o', NULL)", "22004"),
    ("load_top_k_accuracy_function('blobs', 3)", "42703"), ("delete_custom_function('nowhere', 1)", "42P01"),
    ("delete_custom_function('o', NULL::integer)", "22004"),
    ("load_custom_function('o', NULL, 'f')", "22004"),
    ("update_custom_function_table('blobs')", "42703"),
    ("load_model_selection_table('arch', 'x', ARRAY[1], ARRAY['a'], ARRAY['b'], 'nowhere')", "42P01"),
])  # fmt: skip
def test_faults_about_object_tables(trial: Trial, call: str, code: str) -> None:
    with pytest.raises(psycopg2.Error) as raised:
        trial.sql(f"SELECT cerebro.{call}")
    assert raised.value.pgcode == code


def test_rubbish_is_no_serialized_function(trial: Trial) -> None:
    """Bytes that are no function are refused; the error code depends on whether the server has dill."""
    reads = trial.server_has("dill")
    with pytest.raises(psycopg2.Error) as raised:
        trial.sql("SELECT cerebro.load_custom_function('o', 'x', 'my_f')")
    assert raised.value.pgcode == ("22023" if reads else "0A000")
    assert reads or "cerebro.register_function" in str(raised.value)
