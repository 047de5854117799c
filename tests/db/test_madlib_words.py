"""Compatibility with MADlib beyond the names of functions: parameters, tables and messages."""

from __future__ import annotations

import importlib.metadata
from contextlib import closing

import psycopg2
import pytest

import nets
import reference
from trial import ADAM, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES = 6
BOARD = "batch_size=16,epochs=1,callbacks=[TensorBoard(log_dir='/tmp/logs/fit')]"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(90, features=FEATURES)
    trial.table("rows", "x real[], y integer", rows_of(x[:60], y[:60]))
    trial.table("other_rows", "x real[], y integer", rows_of(x[60:], y[60:]))
    trial.pack("rows", "packed")
    trial.pack_validation("other_rows", "packed_val", "packed")
    trial.model(nets.mlp(FEATURES))


def test_callbacks_are_left_out_and_one_notice_says_what_replaces_them(trial: Trial) -> None:
    trial.select("mst_board", [1], [ADAM], [BOARD, f"{BOARD},initial_epoch=2,shuffle=False", "batch_size=8"])
    assert trial.value("SELECT count(*) FROM mst_board WHERE fit_params LIKE '%%TensorBoard%%'") == 2
    trial.notices()
    trial.fit("packed", "with_board", "mst_board", 1)
    said = trial.notices()
    assert said.count("left out") == 2
    assert said.count("NOTICE:  of the fit parameters callback TensorBoard left out: cerebro.metrics") == 1
    trial.select("mst_plain", [1], [ADAM], ["batch_size=16,epochs=1"])
    trial.fit("packed", "without_board", "mst_plain", 1)
    assert "left out" not in trial.notices()
    plain = trial.weights("without_board")[1]
    assert plain in trial.weights("with_board").values()


def test_callbacks_in_a_grid_and_in_a_search(trial: Trial) -> None:
    grid = """{'batch_size': [16], 'callbacks': ["[TensorBoard(log_dir='/tmp/logs')]"]}"""
    compiles = (
        "{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],"
        " 'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.01, 0.1]}]}"
    )
    trial.call("generate_model_configs", "arch", "mst_grid", [1], compiles, grid)
    trial.notices()
    trial.fit("packed", "by_grid", "mst_grid", 1)
    assert trial.notices().count("callback TensorBoard left out") == 1
    trial.call(
        "madlib_keras_automl", "packed", "searched", "arch", "mst_searched", [1], compiles, grid,
        "hyperopt", "num_configs=2, num_iterations=1, algorithm=rand", 1, options={"threads": 1},
    )  # fmt: skip
    assert trial.notices().count("callback TensorBoard left out") == 1


def test_no_fit_parameters_are_keras_own(trial: Trial) -> None:
    options = {"threads": 1, "seed": 7}
    trial.call("madlib_keras_fit", "packed", "one", "arch", 1, ADAM, None, 1, options=options)
    trial.call(
        "madlib_keras_fit", "packed", "same", "arch", 1, ADAM, "batch_size=32,epochs=1", 1, options=options
    )
    one, same = (bytes(trial.value(f"SELECT model_weights FROM {name}")) for name in ("one", "same"))
    assert one == same


def test_summaries_name_tables_as_the_call_does(trial: Trial) -> None:
    trial.select("mst_named", [1], [ADAM], ["batch_size=16,epochs=1"])
    assert trial.sql("SELECT object_table FROM mst_named_summary WHERE model_arch_table = 'arch'") == [
        (None,)
    ]
    trial.call(
        "madlib_fit_multiple_model", "packed", ' "Named" ', "public.mst_named", 1,
        validation_table="packed_val", options={"threads": 1},
    )  # fmt: skip
    row = trial.read_row('SELECT * FROM "Named_summary"')
    assert (row["model"], row["model_info"]) == (' "Named" ', '"Named_info"')
    assert (row["source_table"], row["model_selection_table"]) == ("packed", "public.mst_named")
    assert row["qualified_names"] == {
        "source_table": "public.packed",
        "validation_table": "public.packed_val",
        "model": 'public."Named"',
        "model_info": 'public."Named_info"',
        "model_arch_table": "public.arch",
        "model_selection_table": "public.mst_named",
    }
    options = {"threads": 1}
    trial.call("madlib_fit", "packed", "single", "arch", 1, ADAM, "batch_size=16", 1, options=options)
    row = trial.read_row("SELECT * FROM single_summary WHERE model_arch_table = 'arch'")
    assert (row["source_table"], row["model"], row["validation_table"]) == ("packed", "single", None)
    assert row["qualified_names"] == {
        "source_table": "public.packed", "model": "public.single", "model_arch_table": "public.arch",
    }  # fmt: skip


def test_what_reads_them_finds_the_tables_from_everywhere(trial: Trial) -> None:
    trial.select("mst_here", [1], [ADAM], ["batch_size=16,epochs=1"])
    trial.sql("CREATE SCHEMA elsewhere; SET search_path = elsewhere")
    try:
        trial.call(
            "madlib_fit_multiple_model", "public.packed", "out", "public.mst_here", 1,
            options={"threads": 1, "seed": 7},
        )  # fmt: skip
        trial.call(
            "madlib_fit_multiple_model", "public.packed", "out", "public.mst_here", 1, warm_start=True,
            options={"threads": 1},
        )  # fmt: skip
        trial.sql("SET search_path = public")
        summary = trial.read_row("SELECT * FROM elsewhere.out_summary")
        assert (summary["model"], summary["model_arch_table"]) == ("out", "arch")
        assert summary["qualified_names"]["model"] == 'elsewhere."out"'
        trial.sql("SELECT cerebro.madlib_evaluate('elsewhere.out', 'packed_val', 'measured', FALSE, 1)")
        assert trial.value("SELECT loss FROM measured") > 0
    finally:
        trial.sql("RESET search_path")


def test_a_run_that_is_resumed_names_them_alike(trial: Trial) -> None:
    trial.select("mst_again", [1], [ADAM], ["batch_size=16,epochs=1"])
    run = trial.fit("packed", "again", "mst_again", 1)
    columns = "model, source_table, model_arch_table, model_selection_table, qualified_names"
    names = f"SELECT {columns} FROM again_summary"
    before = trial.read_row(names)
    trial.sql("DROP TABLE again, again_info, again_summary")
    trial.sql("BEGIN; SET LOCAL search_path = pg_catalog")
    trial.sql("SELECT cerebro.resume(%s)", run)
    trial.sql("COMMIT")
    assert trial.read_row(names) == before


def test_configs_are_added_where_the_summary_was_dropped(trial: Trial) -> None:
    grid = "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.1]}]}"
    for batch in (8, 16):
        trial.sql("DROP TABLE IF EXISTS mst_grown_summary")
        trial.call("generate_model_configs", "arch", "mst_grown", [1], grid, f"{{'batch_size': [{batch}]}}")
    assert trial.value("SELECT count(*) FROM mst_grown") == 2
    assert trial.value("SELECT model_arch_table FROM mst_grown_summary") == "arch"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("madlib_fit_multiple_model(NULL, 'o', 'mst_named', 1)", "NULL/empty input table name"),
        ("madlib_fit_multiple_model('packed', ' ', 'mst_named', 1)", "NULL/empty output table name"),
        ("madlib_fit_multiple_model('packed', 'o', '', 1)", "NULL/empty input table name"),
        ("load_keras_model('', '{}')", "NULL/empty input table name"),
        ("training_preprocessor_dl('', 'o', 'y', 'x')", "NULL/empty input table name"),
        ("training_preprocessor_dl('rows', NULL, 'y', 'x')", "NULL/empty output table name"),
        ("madlib_evaluate(NULL, 'packed', 'o')", "NULL/empty input table name"),
    ],
)
def test_a_missing_name_is_told_in_madlibs_words(trial: Trial, call: str, words: str) -> None:
    with pytest.raises(psycopg2.errors.NullValueNotAllowed) as caught:
        trial.sql(f"SELECT cerebro.{call}")
    assert words in str(caught.value)


def test_a_config_without_metrics_has_no_type_of_metrics(trial: Trial) -> None:
    without = "loss='categorical_crossentropy',optimizer='Adam(lr=0.01)'"
    trial.select("mst_bare", [1], [without], ["batch_size=16,epochs=1"])
    trial.fit("packed", "bare", "mst_bare", 1)
    assert trial.sql("SELECT metrics_type, loss_type, training_metrics_final FROM bare_info") == [
        (None, "categorical_crossentropy", None)
    ]
    trial.sql("SELECT cerebro.madlib_evaluate('bare', 'packed', 'bare_measured', FALSE, 1)")
    assert trial.value("SELECT metrics_type FROM bare_measured") is None


@pytest.mark.parametrize("schema", ["cerebro", "madlib"])
def test_version_names_everything_and_loads_nothing(trial: Trial, schema: str) -> None:
    trial.sql("CREATE EXTENSION IF NOT EXISTS cerebro_madlib")
    trial.sql("CREATE EXTENSION IF NOT EXISTS plpython3u")
    said = trial.value(f"SELECT {schema}.version()")
    own = trial.value("SELECT extversion FROM pg_extension WHERE extname = 'cerebro'")
    server = trial.value("SHOW server_version").split()[0]
    assert said.startswith(f"Cerebro DB {own}, ") and f"PostgreSQL {server}, Python 3." in said
    packages = ["Keras", "JAX", "NumPy", *(["TensorFlow"] if reference.BACKEND == "tensorflow" else [])]
    for package in packages:
        name = {"TensorFlow": "tensorflow-cpu"}.get(package, package.lower())
        assert f", {package} {importlib.metadata.version(name)}" in said
    with closing(psycopg2.connect(trial.connection.dsn)) as fresh, fresh.cursor() as cursor:
        cursor.execute(f"SELECT {schema}.version()")
        cursor.execute(
            'DO \'import sys; assert not {"keras", "tensorflow"} & set(sys.modules)\' LANGUAGE plpython3u'
        )


def test_float_labels_that_are_classes(trial: Trial) -> None:
    trial.sql("CREATE TABLE floats AS SELECT row_number() OVER ()::integer AS id, x, y::float8 FROM rows")
    trial.call("training_preprocessor_dl", "floats", "floats_packed", "y", "x", options={"segments": 2})
    fit = ("floats_packed", "floats_model", "arch", 1, ADAM, "batch_size=16", 1)
    with pytest.raises(psycopg2.errors.InvalidParameterValue) as caught:
        trial.call("madlib_fit", *fit, options={"threads": 1})
    assert "num_classes => ARRAY[3]" in (caught.value.diag.message_hint or "")
    trial.sql("DROP TABLE floats_packed, floats_packed_summary")
    trial.sql(
        "SELECT cerebro.training_preprocessor_dl('floats', 'floats_packed', 'y', 'x', NULL, 1.0, ARRAY[3])"
    )
    assert trial.value("SELECT y_class_values FROM floats_packed_summary") == [0.0, 1.0, 2.0]
    trial.call("madlib_fit", *fit, options={"threads": 1})
    trial.sql("SELECT cerebro.madlib_keras_predict('floats_model', 'floats', 'id', 'x', 'floats_out')")
    assert trial.sql("SELECT DISTINCT class_value FROM floats_out ORDER BY 1") == [
        ("0.0",),
        ("1.0",),
        ("2.0",),
    ]


def test_validation_rows_may_have_other_names_and_one_hot_labels(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE named AS SELECT x, (ARRAY['ant', 'bee', 'cat'])[y + 1] AS kind FROM rows;"
        "CREATE TABLE named_more AS SELECT x AS features,"
        " (ARRAY['ant', 'bee', 'cat'])[y + 1]::varchar AS label,"
        " ARRAY[y = 0, y = 1, y = 2]::integer[] AS hot, y AS number FROM other_rows"
    )
    trial.pack("named", "named_packed", y="kind")
    options = {"segments": 2}
    trial.pack_validation("named_more", "by_name", "named_packed", y="label", x="features")
    trial.pack_validation("named_more", "by_place", "named_packed", y="hot", x="features")
    trial.call("training_preprocessor_dl", "named_more", "alone", "hot", "features", options=options)
    assert trial.value("SELECT hot_class_values FROM by_place_summary") == ["ant", "bee", "cat"]
    trial.select("mst_valid", [1], [ADAM], ["batch_size=16,epochs=1"])
    found = []
    for table in ("by_name", "by_place", "alone"):
        trial.fit("named_packed", f"valid_{table}", "mst_valid", 1, validation_table=table)
        found.append(trial.value(f"SELECT validation_loss_final FROM valid_{table}_info"))
    assert found == [pytest.approx(found[0])] * 3
    with pytest.raises(
        psycopg2.errors.InvalidParameterValue, match="class values that the training table does not have"
    ):
        trial.pack_validation("named_more", "by_number", "named_packed", y="number", x="features")
    with pytest.raises(psycopg2.errors.DatatypeMismatch):
        trial.pack_validation("named_more", "by_number", "alone", y="label", x="features")
    trial.sql("CREATE TABLE fewer AS SELECT x, kind FROM named WHERE kind <> 'bee'")
    trial.call(
        "training_preprocessor_dl", "fewer", "fewer_packed", "kind", "x", num_classes=[3], options=options
    )
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match="the list of classes is"):
        trial.fit("named_packed", "valid_fewer", "mst_valid", 1, validation_table="fewer_packed")


@pytest.mark.parametrize("function", ["madlib_keras_fit", "madlib_keras_fit_multiple_model"])
def test_a_missing_table_is_told_in_the_words_that_scripts_match(trial: Trial, function: str) -> None:
    trial.select("mst_missing", [1], [ADAM], ["batch_size=16,epochs=1"])
    asked = ("arch", 1, ADAM, "batch_size=16", 1) if function == "madlib_keras_fit" else ("mst_missing", 1)
    with pytest.raises(psycopg2.errors.UndefinedTable, match="'table_does_not_exist' does not exist"):
        trial.call(function, "table_does_not_exist", "out_of_nothing", *asked)
    trial.sql("DROP TABLE mst_missing, mst_missing_summary")


def test_a_single_model_is_not_evaluated_by_a_key(trial: Trial) -> None:
    trial.call("madlib_keras_fit", "packed", "keyless", "arch", 1, ADAM, "batch_size=16", 1)
    with pytest.raises(psycopg2.Error, match="mst_key 1 was given, but .* holds a single model"):
        trial.call("madlib_keras_evaluate", "keyless", "packed_val", "measured_by_key", mst_key=1)
    assert trial.value("SELECT to_regclass('measured_by_key') IS NULL")
