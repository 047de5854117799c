"""Each call with bad input raises one clear error before it does any work, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

import nets
from trial import ADAM, Trial, blobs, rows_of

FEATURES = 6
LAYER = {"module": "keras.layers", "registered_name": None}
LAMBDA = {**LAYER, "class_name": "Lambda", "config": {"name": "l", "function": ["4wEAAAAA", None, None]}}
INVALID, NOT_NULL, NO_TABLE, NO_COLUMN = "22023", "22004", "42P01", "42703"
DUPLICATE, MISMATCH, BAD_TEXT, STATE = "42P07", "42804", "22P02", "55000"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("good", "x real[], y integer", rows_of(*blobs(60, features=FEATURES)))
    trial.sql(
        "CREATE TABLE holed AS SELECT CASE WHEN y = 1 THEN x END AS x, y FROM good;"
        "CREATE TABLE ragged AS SELECT x[1:3 + y] AS x, y FROM good;"
        "CREATE TABLE nans AS SELECT array_replace(x, x[2], 'NaN') AS x, y FROM good;"
        "CREATE TABLE infinite AS SELECT array_replace(x, x[2], '-Infinity') AS x, y FROM good;"
        "CREATE TABLE nulls AS SELECT array_replace(x, x[2], NULL) AS x, y FROM good;"
        "CREATE TABLE words AS SELECT x::text[] AS x, y FROM good;"
        "CREATE TABLE nothing AS SELECT * FROM good LIMIT 0;"
        "CREATE TABLE four AS SELECT x, (random() * 1e6)::integer % 4 AS y FROM good"
    )
    trial.pack("good", "packed")
    trial.pack("good", "one_segment", options={"segments": 1})
    trial.model(nets.mlp(FEATURES))
    trial.model(nets.mlp(FEATURES + 1))
    trial.model(nets.mlp(FEATURES, outputs=5))
    fit = ["batch_size=8,epochs=1"]
    trial.select("mst", [1], [ADAM], fit)
    trial.select("mst_features", [2], [ADAM], fit)
    trial.select("mst_classes", [3], [ADAM], fit)
    regression = (
        "loss='sparse_categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['categorical_accuracy']"
    )
    trial.select("mst_mixed", [1], [regression], fit)
    for column in ("mst_key", "model_id", "compile_params", "fit_params"):
        trial.keep(f"mst_no_{column}", "mst", [1])
        trial.sql(f"UPDATE mst_no_{column} SET {column} = NULL")
    trial.keep("mst_negative", "mst", [1])
    trial.sql("UPDATE mst_negative SET mst_key = -1")
    trial.sql("CREATE TABLE mst_bare AS SELECT * FROM mst")
    trial.keep("mst_nothing", "mst", [])
    trial.keep("mst_broken", "mst", [1])
    trial.sql("UPDATE mst_broken SET fit_params = 'batch_size=0'")
    trial.keep("mst_gone", "mst", [1])
    trial.sql("UPDATE mst_gone SET model_id = 77")
    trial.keep("mst_twice", "mst", [1])
    trial.sql("INSERT INTO mst_twice SELECT * FROM mst_twice")
    trial.sql(
        "CREATE TABLE taken (i integer); CREATE TABLE half_info (i integer);"
        "CREATE TABLE rest_summary (i integer)"
    )


def pack(source: str = "'good'", out: str = "'out'", y: str = "'y'", x: str = "'x'", more: str = "") -> str:
    options = "" if "options" in more else """, options => '{"segments": 2}'"""
    return f"SELECT cerebro.training_preprocessor_dl({source}, {out}, {y}, {x}{more}{options})"


def model(architecture: object, more: str = "") -> str:
    text = architecture if isinstance(architecture, str) else json.dumps(architecture)
    return f"SELECT cerebro.load_keras_model('arch', $j${text}$j${more})"


def select(
    compiles: str = ADAM,
    fits: str = "batch_size=8,epochs=1",
    ids: str = "{1}",
    out: str = "'out'",
    arch: str = "arch",
) -> str:
    """Return the call that makes a selection table from one compile and one fit parameter string."""
    lists = f"'{ids}', ARRAY[$c${compiles}$c$], ARRAY[$f${fits}$f$]"
    return f"SELECT cerebro.load_model_selection_table('{arch}', {out}, {lists})"


def loss(text: str) -> str:
    return select(f"loss={text},optimizer='Adam(lr=0.01)'")


def optimizer(text: str) -> str:
    return select(f"loss='mse',optimizer='{text}'")


def fit(
    source: str = "'packed'", out: str = "'out'", mst: str = "'mst'", epochs: str = "1", more: str = ""
) -> str:
    options = "" if "options" in more else """, options => '{"threads": 1}'"""
    return f"SELECT cerebro.madlib_fit_multiple_model({source}, {out}, {mst}, {epochs}{more}{options})"


def grid(compiles: str, fits: str = "{'batch_size': [8], 'epochs': [1]}", more: str = "") -> str:
    return (
        f"SELECT cerebro.generate_model_configs('arch', 'out', '{{1}}', $c${compiles}$c$, $f${fits}$f${more})"
    )


GRID = "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.1]}]}"
SEQUENTIAL = json.loads(nets.mlp(FEATURES))
WITH_LAMBDA = json.loads(nets.mlp(FEATURES))
WITH_LAMBDA["config"]["layers"].append(LAMBDA)
UNKNOWN_LAYER = json.loads(nets.mlp(FEATURES).replace('"Dense"', '"Dnse"'))
NO_INPUT = json.loads(nets.mlp(FEATURES))
del NO_INPUT["config"]["layers"][0]

PACKING = [
    (pack("'missing'"), NO_TABLE, "missing"),
    (pack("NULL"), NOT_NULL, "NULL"),
    (pack("''"), NOT_NULL, "empty"),
    (pack(y="'missing'"), NO_COLUMN, "missing"),
    (pack(x="'missing'"), NO_COLUMN, "missing"),
    (pack(x="NULL"), NOT_NULL, "independent_varname"),
    (pack("'words'"), MISMATCH, "text"),
    (pack("'holed'"), NOT_NULL, "NULL"),
    (pack("'nulls'"), NOT_NULL, "NULL"),
    (pack("'ragged'"), INVALID, "shape"),
    (pack("'nans'"), INVALID, "NaN"),
    (pack("'infinite'"), INVALID, "infinit"),
    (pack("'nothing'"), INVALID, "no rows"),
    (pack(out="'taken'"), DUPLICATE, "already exists"),
    (pack(out="'good'"), DUPLICATE, "good"),
    (pack(out="NULL"), NOT_NULL, "output table"),
    (pack(more=", buffer_size => 0"), INVALID, "buffer_size"),
    (pack(more=", normalizing_const => 0"), INVALID, "normalizing_const"),
    (pack("'four'", more=", num_classes => '{3}'"), INVALID, "num_classes"),
    (pack(more=""", options => '{"segmets": 2}'"""), INVALID, "segments"),
    (pack(more=""", options => '{"segments": 0}'"""), INVALID, "segments"),
    (pack(more=", options => '[2]'"), INVALID, "not a JSON object"),
]  # fmt: skip

ARCHITECTURES = [
    (model("{"), BAD_TEXT, "json"),
    (model("{}"), INVALID, "not a Keras model"),
    (model("[1, 2]"), INVALID, "not a Keras model"),
    (model("5"), INVALID, "not a Keras model"),
    (model("null"), INVALID, "not a Keras model"),
    (model({**SEQUENTIAL, "class_name": "Sequentiel"}), "0A000", "Sequentiel"),
    (model({**SEQUENTIAL, "config": {}}), INVALID, "Keras"),
    (model(UNKNOWN_LAYER), "0A000", "Dnse"),
    (model(WITH_LAMBDA), "0A000", "Lambda"),
    (model(SEQUENTIAL, r", '\x00000000'::bytea"), INVALID, "weights"),
    ("SELECT cerebro.load_keras_model('arch', NULL)", NOT_NULL, "model_arch"),
    (f"SELECT cerebro.load_keras_model('good', '{nets.mlp()}')", NO_COLUMN, "not an architecture table"),
    (f"SELECT cerebro.load_keras_model(NULL, '{nets.mlp()}')", NOT_NULL, "NULL"),
    ("SELECT cerebro.delete_keras_model('arch', 99)", INVALID, "Model id 99 not found"),
    ("SELECT cerebro.delete_keras_model('missing', 1)", NO_TABLE, "missing"),
]  # fmt: skip

SELECTIONS = [
    (select(arch="missing"), NO_TABLE, "missing"),
    (select(ids="{9}"), INVALID, "One or more model_id of (9) not found"),
    (select(ids="{}"), NOT_NULL, "model_id_list"),
    (select(out="'taken'"), DUPLICATE, "already exists"),
    (select(out="'rest'"), DUPLICATE, "rest_summary"),
    (optimizer("Adma(lr=0.1)"), INVALID, "Adam"),
    (optimizer("Adam(learning_rat=0.1)"), INVALID, "learning_rate"),
    (optimizer("Adam(lr=fast)"), INVALID, "fast"),
    (optimizer("Adam(lr=-1)"), INVALID, "-1"),
    (optimizer("Adam(lr=0.1"), INVALID, "Adam(lr=0.1"),
    (optimizer("SGD(learning_rate=ExponentialDecay(0.1))"), INVALID, "ExponentialDecay"),
    (loss("'mean_squared_eror'"), INVALID, "mean_squared_error"),
    (loss("'mse',metrics=['acuracy']"), INVALID, "accuracy"),
    (loss("'mse',metrics=[AUC(curv='PR')]"), INVALID, "curve"),
    (loss("'mse',callbacks=[]"), INVALID, "callbacks"),
    (loss("__import__('os').getpid()"), INVALID, "Compile param check failed"),
    (loss("'mse',metrics=[().__class__]"), INVALID, "Compile param check failed"),
    (select("optimizer='Adam()'"), INVALID, "loss is a required parameter"),
    (select("loss='mse'"), INVALID, "optimizer is a required parameter"),
    (select("loss='mse',loss='mae',optimizer='SGD()'"), INVALID, "loss"),
    (select("loss="), INVALID, "Compile param check failed"),
    (select(""), INVALID, "Compile param check failed"),
    (select(fits="batch_size=0"), INVALID, "batch_size"),
    (select(fits="batch_size=-4,epochs=1"), INVALID, "batch_size"),
    (select(fits="batch_size=2.5"), INVALID, "batch_size"),
    (select(fits="epochs=0"), INVALID, "epochs"),
    (select(fits="batchsize=4"), INVALID, "batch_size"),
    (select(fits="batch_size=4,class_weight=[1]"), INVALID, "class_weight"),
    (grid("{'metrics': [['accuracy']]}"), INVALID, "loss"),
    (grid("{'loss': ['mse'"), INVALID, "was never closed"),
    (grid(GRID.replace("SGD", "SGDD")), INVALID, "SGD"),
    (grid(GRID, more=", 'grod'"), INVALID, "search_type"),
    (grid(GRID, more=", 'random'"), INVALID, "num_configs"),
    (grid(GRID, more=", 'random', 5"), INVALID, "1"),
]  # fmt: skip

FITS = [
    (fit("'missing'"), NO_TABLE, "missing"),
    (fit("NULL"), NOT_NULL, "source table"),
    (fit("'good'"), NO_TABLE, "packed"),
    (fit(mst="'missing'"), NO_TABLE, "load_model_selection_table"),
    (fit(mst="'mst_bare'"), NO_TABLE, "mst_bare_summary"),
    (fit(mst="'mst_nothing'"), STATE, "empty"),
    (fit(mst="'mst_broken'"), INVALID, "config 1"),
    (fit(mst="'mst_gone'"), INVALID, "77"),
    (fit(mst="'mst_twice'"), INVALID, "mst_key 1"),
    (fit(mst="'mst_no_mst_key'"), NOT_NULL, "NULL"),
    (fit(mst="'mst_no_model_id'"), NOT_NULL, "NULL"),
    (fit(mst="'mst_no_compile_params'"), NOT_NULL, "NULL"),
    (fit(mst="'mst_no_fit_params'"), NOT_NULL, "NULL"),
    (fit(mst="'mst_negative'"), INVALID, "-1"),
    (fit(epochs="0"), INVALID, "Number of iterations cannot be < 1"),
    (fit(epochs="-3"), INVALID, "-3"),
    (fit(epochs="NULL"), INVALID, "iterations"),
    (fit(more=", name => repeat('n', 201)"), INVALID, "name has 201 characters"),
    (fit(more=", description => repeat('n', 10001)"), INVALID, "description has 10001 characters"),
    (fit(more=", metrics_compute_frequency => 0"), INVALID, "metrics_compute_frequency"),
    (fit(more=", metrics_compute_frequency => 2"), INVALID, "metrics_compute_frequency"),
    (fit(more=", validation_table => 'missing'"), NO_TABLE, "missing"),
    (fit(more=", validation_table => 'good'"), NO_TABLE, "good\" is not a packed table: its summary"),
    (fit(more=", validation_table => 'one_segment'"), INVALID, "segments"),
    (fit(out="NULL"), NOT_NULL, "model output table"),
    (fit(out="'taken'"), DUPLICATE, "already exists"),
    (fit(out="'half'"), DUPLICATE, "half_info"),
    (fit(out="'rest'"), DUPLICATE, "rest_summary"),
    (fit(out="'no_schema.m'"), "3F000", "no_schema"),
    (fit(out="'pg_temp_999.m'"), "42501", "another session's"),
    (fit(out="'a.b.c'"), INVALID, "a.b.c"),
    (fit(more=", warm_start => TRUE"), NO_TABLE, "warm start"),
    (fit(mst="'mst_features'"), INVALID, "{7}"),
    (fit(mst="'mst_classes'"), INVALID, "3 classes"),
    (fit(mst="'mst_mixed'"), INVALID, "categorical_accuracy"),
    (fit(more=""", options => '{"sed": 1}'"""), INVALID, "seed"),
    (fit(more=""", options => '{"seed": "x"}'"""), INVALID, "seed"),
    (fit(more=""", options => '{"backend": "tensorflw"}'"""), INVALID, "tensorflow"),
    (fit(more=""", options => '{"backend": "torch", "threads": 1}'"""), "0A000", "torch"),
    (fit(more=""", options => '{"threads": 0}'"""), INVALID, "threads"),
    (fit(more=""", options => '{"memory_mb": 1}'"""), INVALID, "memory_mb"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_leftovers(trial: Trial) -> Iterator[None]:
    """After each test, drop the result tables that a refused call should not have made."""
    yield
    trial.sql("DROP TABLE IF EXISTS out, out_info, out_summary")


def standing(trial: Trial) -> tuple[object, ...]:
    """Return everything that a refused call might leave: tables, runs, configs, nets and locks."""
    return trial.sql(
        "SELECT (SELECT array_agg(oid ORDER BY oid) FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace),"
        " (SELECT count(*) FROM cerebro._run), (SELECT count(*) FROM cerebro._config),"
        " (SELECT count(*) FROM arch), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
    )[0]


@pytest.mark.parametrize(("statement", "code", "text"), [*PACKING, *ARCHITECTURES, *SELECTIONS, *FITS])
def test_bad_input_is_refused(trial: Trial, statement: str, code: str, text: str) -> None:
    before = standing(trial)
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql(statement)
    said = caught.value.diag
    message = said.message_primary or ""
    everything = " ".join([message, said.message_detail or "", said.message_hint or ""])
    assert (caught.value.pgcode, text in everything) == (code, True), everything
    assert "\n" not in message
    assert not message.endswith(".")
    assert "Traceback" not in everything
    assert standing(trial) == before


def test_read_only_transactions_are_refused(trial: Trial) -> None:
    trial.sql("BEGIN READ ONLY")
    with pytest.raises(psycopg2.Error, match="read-only"):
        trial.sql(fit())
    trial.sql("ROLLBACK")


ODD_NAMES = [
    '"Capital Letters"',
    '"quote "" quote"',
    '"apo\'strophe"',
    '"dot.dot"',
    '"größe"',
    '"x); DROP TABLE good; --"',
    '"a%sb%"',
    '"$1"',
    '"select"',
    '"back\\slash"',
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_of_all_kinds_are_only_names(trial: Trial, name: str) -> None:
    """A job from packing to training works with this name in its schema, tables and columns."""
    schema, table, packed, arch, mst, out, x, y = (
        f'"{part}{name[1:-1]}"' for part in ("schema ", "t", "packed", "arch", "mst", "m", "x", "y")
    )
    info = f'"m{name[1:-1]}_info"'
    trial.sql(f"CREATE SCHEMA {schema}")
    trial.sql(f"CREATE TABLE {schema}.{table} AS SELECT x AS {x}, y AS {y} FROM good")
    trial.pack(f"{schema}.{table}", f"{schema}.{packed}", y=y, x=x)
    trial.sql("SELECT cerebro.load_keras_model(%s, %s)", f"{schema}.{arch}", nets.mlp(FEATURES))
    trial.select(f"{schema}.{mst}", [1], [ADAM], ["batch_size=16,epochs=1"], arch=f"{schema}.{arch}")
    trial.sql(
        "SELECT cerebro.madlib_fit_multiple_model(%s, %s, %s, 1, options => %s)",
        f"{schema}.{packed}", f"{schema}.{out}", f"{schema}.{mst}", '{"threads": 1, "seed": 1}',
    )  # fmt: skip
    assert trial.sql(f"SELECT status FROM {schema}.{info}") == [("finished",)]
    assert trial.value("SELECT count(*) FROM good") == 60


def test_a_role_cannot_train_on_what_it_may_not_read(trial: Trial, database: str) -> None:
    trial.sql("CREATE ROLE bad_input_user LOGIN")
    trial.sql("GRANT CREATE ON SCHEMA public TO bad_input_user; SELECT cerebro.grant_usage('bad_input_user')")
    trial.sql("GRANT SELECT ON mst, mst_summary, arch, packed_summary TO bad_input_user")
    try:
        with closing(psycopg2.connect(dbname=database, user="bad_input_user")) as connection:
            connection.autocommit = True
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                Trial(connection).sql(fit())
    finally:
        trial.sql("DROP OWNED BY bad_input_user; DROP ROLE bad_input_user")
