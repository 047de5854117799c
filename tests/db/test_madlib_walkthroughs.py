"""Jobs from MADlib's user documentation, from the table of flowers to the last prediction.

Every statement is written for schema madlib; all run there, unchanged and in their order.
"""

# ruff: noqa: E501
from __future__ import annotations

import psycopg2
import pytest
from psycopg2.extras import execute_values
from sklearn.datasets import load_iris

import nets
from fixtures import execute
from trial import Trial

NAMES = ["Iris-setosa", "Iris-versicolor", "Iris-virginica"]
HIDDEN = 10


def net(*hidden: int, frozen: int = 0) -> str:
    """Return a net with these hidden layers and a softmax over the three species.

    Its first `frozen` layers do not train. Units have tanh: with relu, some seeds leave dead units.
    """
    layers = [nets.layer("Dense", units=units, activation="tanh") for units in hidden]
    layers.append(nets.layer("Dense", units=3, activation="softmax"))
    for layer in layers[:frozen]:
        layer["config"]["trainable"] = False
    return nets.sequential([4], *layers)


PREPARE = """
DROP TABLE IF EXISTS iris_data;
CREATE TABLE iris_data (id serial, attributes numeric[], class_text varchar, class integer);
"""
SPLIT = """
DROP TABLE IF EXISTS iris_train, iris_test;
SELECT madlib.train_test_split('iris_data', 'iris', 0.8, NULL, NULL, NULL, FALSE, TRUE);
DROP TABLE IF EXISTS iris_train_packed, iris_train_packed_summary;
SELECT madlib.training_preprocessor_dl('iris_train', 'iris_train_packed', 'class_text', 'attributes');
DROP TABLE IF EXISTS iris_test_packed, iris_test_packed_summary;
SELECT madlib.validation_preprocessor_dl('iris_test', 'iris_test_packed', 'class_text', 'attributes',
                                         'iris_train_packed');
"""
LIBRARY = f"""
DROP TABLE IF EXISTS iris_arch;
SELECT madlib.load_keras_model('iris_arch', $${net(HIDDEN, HIDDEN)}$$::json, NULL, 'Ada', 'two hidden layers');
SELECT madlib.load_keras_model('iris_arch', $${net(HIDDEN, HIDDEN, HIDDEN)}$$::json, NULL, 'Ben', 'three of them');
"""
ONE_MODEL = """
DROP TABLE IF EXISTS iris_model, iris_model_summary;
SELECT madlib.madlib_keras_fit('iris_train_packed', 'iris_model', 'iris_arch', 1,
    $$ loss='categorical_crossentropy', optimizer='Adam(lr=0.005)', metrics=['accuracy'] $$,
    $$ batch_size=5, epochs=2, callbacks=[TensorBoard(log_dir='/tmp/logs/fit')] $$, 8);
DROP TABLE IF EXISTS iris_measured;
SELECT madlib.madlib_keras_evaluate('iris_model', 'iris_test_packed', 'iris_measured');
DROP TABLE IF EXISTS iris_told;
SELECT madlib.madlib_keras_predict('iris_model', 'iris_test', 'id', 'attributes', 'iris_told', 'response');
DROP TABLE IF EXISTS iris_likely;
SELECT madlib.madlib_keras_predict('iris_model', 'iris_test', 'id', 'attributes', 'iris_likely', 'prob');
DROP TABLE IF EXISTS iris_best_two;
SELECT madlib.madlib_keras_predict('iris_model', 'iris_test', 'id', 'attributes', 'iris_best_two', 2);
DROP TABLE IF EXISTS iris_watched, iris_watched_summary;
SELECT madlib.madlib_keras_fit('iris_train_packed', 'iris_watched', 'iris_arch', 1,
    $$ loss='categorical_crossentropy', optimizer='Adam(lr=0.03)', metrics=['accuracy'] $$,
    $$ batch_size=5, epochs=2 $$, 4, FALSE, 'iris_test_packed', 2, FALSE, 'Cleo', 'measured on the way');
SELECT madlib.madlib_keras_fit('iris_train_packed', 'iris_watched', 'iris_arch', 1,
    $$ loss='categorical_crossentropy', optimizer='Adam(lr=0.01)', metrics=['accuracy'] $$,
    $$ batch_size=5, epochs=2 $$, 3, FALSE, 'iris_test_packed', 1, TRUE, 'Cleo', 'and trained on');
"""
TRANSFER = f"""
SELECT madlib.load_keras_model('iris_arch', $${net(HIDDEN, HIDDEN, frozen=1)}$$::json,
                               (SELECT model_weights FROM iris_model), 'Dora', 'begins where the first ended');
DROP TABLE IF EXISTS iris_transferred, iris_transferred_summary;
SELECT madlib.madlib_keras_fit('iris_train_packed', 'iris_transferred', 'iris_arch', 3,
    $$ loss='categorical_crossentropy', optimizer='Adam(lr=0.01)', metrics=['accuracy'] $$,
    $$ batch_size=5, epochs=1 $$, 1, FALSE, 'iris_test_packed', 1);
"""
MANY_MODELS = """
DROP TABLE IF EXISTS iris_mst, iris_mst_summary;
SELECT madlib.load_model_selection_table('iris_arch', 'iris_mst', ARRAY[1, 2],
    ARRAY[
        $$loss='categorical_crossentropy',optimizer='Adam(lr=0.03)',metrics=['accuracy']$$,
        $$loss='categorical_crossentropy',optimizer='SGD(lr=0.001)',metrics=['accuracy']$$
    ],
    ARRAY[$$batch_size=5,epochs=2$$, $$batch_size=10,epochs=2$$]);
DROP TABLE IF EXISTS iris_multi, iris_multi_summary, iris_multi_info;
SELECT madlib.madlib_keras_fit_multiple_model('iris_train_packed', 'iris_multi', 'iris_mst', 4, FALSE);
DROP TABLE IF EXISTS iris_multi, iris_multi_summary, iris_multi_info;
SELECT madlib.madlib_keras_fit_multiple_model('iris_train_packed', 'iris_multi', 'iris_mst', 12, FALSE,
    'iris_test_packed', 2, FALSE, 'Elio', 'several at once');
SELECT madlib.madlib_keras_fit_multiple_model('iris_train_packed', 'iris_multi', 'iris_mst', 2, FALSE,
    'iris_test_packed', 1, TRUE, 'Elio', 'and on');
DROP TABLE IF EXISTS iris_measured;
SELECT madlib.madlib_keras_evaluate('iris_multi', 'iris_test_packed', 'iris_measured', FALSE, 1);
DROP TABLE IF EXISTS iris_told;
SELECT madlib.madlib_keras_predict('iris_multi', 'iris_test', 'id', 'attributes', 'iris_told', 'response', FALSE, 1);
"""
CONFIGS = """
DROP TABLE IF EXISTS iris_grid, iris_grid_summary;
SELECT madlib.generate_model_configs('iris_arch', 'iris_grid', ARRAY[1, 2],
    $$ {'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
        'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.01, 0.03]}, {'optimizer': ['SGD'], 'lr': [0.1]}]} $$,
    $$ {'batch_size': [5, 10], 'epochs': [1], 'callbacks': ["[TensorBoard(log_dir='/tmp/logs/grid')]"]} $$, 'grid');
DROP TABLE IF EXISTS iris_random, iris_random_summary;
SELECT madlib.generate_model_configs('iris_arch', 'iris_random', ARRAY[1, 2],
    $$ {'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
        'optimizer_params_list': [{'optimizer': ['Adam', 'SGD'], 'lr': [0.001, 0.1, 'log']}]} $$,
    $$ {'batch_size': [4, 8, 16], 'epochs': [1, 2]} $$, 'random', 5, 19);
DROP TABLE IF EXISTS iris_schedule;
SELECT madlib.hyperband_schedule('iris_schedule', 9, 3, 0);
"""
SEARCH = """
DROP TABLE IF EXISTS iris_found, iris_found_info, iris_found_summary, iris_winner, iris_winner_summary;
SELECT madlib.madlib_keras_automl('iris_train_packed', 'iris_found', 'iris_arch', 'iris_winner', ARRAY[1, 2],
    $$ {'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
        'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.01, 0.05, 'log']}]} $$,
    $$ {'batch_size': [5, 10], 'epochs': [2]} $$,
    'hyperband', 'R=4, eta=2, skip_last=1', 7, NULL, FALSE, 'iris_test_packed', 1, 'Fred', 'a tournament');
DROP TABLE IF EXISTS iris_told;
SELECT madlib.madlib_keras_predict('iris_found', 'iris_test', 'id', 'attributes', 'iris_told', 'response', FALSE,
                                   (SELECT mst_key FROM iris_winner));
DROP TABLE IF EXISTS iris_tried, iris_tried_info, iris_tried_summary, iris_choice, iris_choice_summary;
SELECT madlib.madlib_keras_automl('iris_train_packed', 'iris_tried', 'iris_arch', 'iris_choice', ARRAY[1, 2],
    $$ {'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
        'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.01, 0.05, 'log']}]} $$,
    $$ {'batch_size': [5, 10], 'epochs': [2]} $$,
    'hyperopt', 'num_configs=4, num_iterations=3, algorithm=tpe', 7, NULL, FALSE, 'iris_test_packed');
"""
OWN_MODEL = """
DROP TABLE IF EXISTS iris_brought;
SELECT madlib.load_keras_model('iris_brought', (SELECT model_arch FROM iris_model),
                               (SELECT model_weights FROM iris_model), 'Gina', 'trained elsewhere');
DROP TABLE IF EXISTS iris_told;
SELECT madlib.madlib_keras_predict_byom('iris_brought', 1, 'iris_test', 'id', 'attributes', 'iris_told', 'response',
    FALSE, ARRAY[ARRAY['Iris-setosa', 'Iris-versicolor', 'Iris-virginica']], 1.0);
DROP TABLE IF EXISTS iris_likely;
SELECT madlib.madlib_keras_predict_byom('iris_brought', 1, 'iris_test', 'id', 'attributes', 'iris_likely', 'prob',
    FALSE);
"""


def walk(trial: Trial, script: str) -> None:
    """Run a script's statements one by one, as psql does."""
    for statement in script.split(";\n"):
        if statement.strip():
            execute(trial.connection, statement)


@pytest.fixture(scope="module", autouse=True)
def prepared(trial: Trial) -> None:
    """Make, split and pack the table of flowers, and load two architectures."""
    trial.sql("CREATE EXTENSION cerebro_madlib")
    walk(trial, PREPARE)
    features, kinds = load_iris(return_X_y=True)
    rows = [(x.tolist(), NAMES[kind], int(kind) + 1) for x, kind in zip(features, kinds, strict=True)]
    with trial.connection.cursor() as cursor:
        execute_values(cursor, "INSERT INTO iris_data (attributes, class_text, class) VALUES %s", rows)
    walk(trial, SPLIT)
    walk(trial, LIBRARY)


@pytest.fixture(scope="module")
def one_model(trial: Trial, prepared: None) -> str:
    """Train one model, and return the server's notices."""
    trial.notices()
    walk(trial, ONE_MODEL)
    return trial.notices()


def right(trial: Trial) -> float:
    """Return the share of test rows whose species was predicted correctly."""
    return trial.value(
        "SELECT avg((class_value = class_text)::integer)::float8 FROM iris_told JOIN iris_test USING (id)"
    )


def test_the_data_are_prepared(trial: Trial) -> None:
    assert trial.sql("SELECT count(*) FROM iris_train UNION ALL SELECT count(*) FROM iris_test") == [
        (120,),
        (30,),
    ]
    row = trial.read_row("SELECT * FROM iris_train_packed_summary WHERE source_table = 'iris_train'")
    assert (row["class_text_class_values"], row["num_classes"], row["total_rows"]) == (NAMES, [3], 120)
    assert trial.sql("SELECT model_id, name FROM iris_arch ORDER BY 1") == [(1, "Ada"), (2, "Ben")]


def test_one_model(trial: Trial, one_model: str) -> None:
    assert one_model.count("callback TensorBoard left out") == 1
    row = trial.read_row(
        "SELECT * FROM iris_model_summary WHERE model_arch_table = 'iris_arch' AND model_id = 1"
    )
    assert row["training_metrics_final"] > 0.8
    assert row["metrics_type"] == ["accuracy"] and "TensorBoard" in row["fit_params"]
    assert (
        trial.value("SELECT count(*) FROM iris_likely")
        == 3 * trial.value("SELECT count(*) FROM iris_told")
        == 90
    )
    assert trial.value("SELECT count(*) FROM iris_best_two WHERE rank <= 2") == 60
    assert right(trial) == pytest.approx(trial.value("SELECT metric FROM iris_measured"))
    watched = trial.read_row("SELECT * FROM iris_watched_summary WHERE validation_table = 'iris_test_packed'")
    assert (watched["description"], watched["metrics_iters"]) == ("and trained on", [1, 2, 3])
    assert len(watched["validation_loss"]) == len(watched["training_metrics"]) == 3


def test_transfer_learning(trial: Trial, one_model: str) -> None:
    walk(trial, TRANSFER)
    row = trial.read_row("SELECT * FROM iris_transferred_summary")
    before = trial.value("SELECT training_loss_final FROM iris_model_summary")
    assert row["training_loss_final"] < before + 0.3
    old, new = (
        bytes(trial.value(f"SELECT model_weights FROM iris_{name}")) for name in ("model", "transferred")
    )
    frozen = 4 * (4 + 1) * HIDDEN
    assert old[:frozen] == new[:frozen] and old != new


def test_many_models(trial: Trial) -> None:
    walk(trial, MANY_MODELS)
    assert (
        trial.value("SELECT count(*) FROM iris_mst")
        == trial.value("SELECT count(*) FROM iris_multi_info")
        == 8
    )
    row = trial.read_row(
        "SELECT * FROM iris_multi_summary WHERE model_selection_table = 'iris_mst' AND model_arch_table = 'iris_arch'"
    )
    assert (row["warm_start"], row["description"], row["metrics_iters"]) == (True, "and on", [1, 2])
    best = trial.read_row(
        "SELECT * FROM iris_multi_info ORDER BY validation_metrics_final DESC, mst_key LIMIT 1"
    )
    assert best["validation_metrics_final"] > 0.8
    assert right(trial) == pytest.approx(trial.value("SELECT metric FROM iris_measured"))


def test_configs(trial: Trial) -> None:
    walk(trial, CONFIGS)
    assert trial.value("SELECT count(*) FROM iris_grid WHERE fit_params LIKE '%%TensorBoard%%'") == 12
    assert trial.value("SELECT count(*) FROM iris_random") == 5
    assert trial.value("SELECT model_arch_table FROM iris_random_summary") == "iris_arch"
    assert trial.sql("SELECT s, i, n_i, r_i FROM iris_schedule WHERE s = 2 ORDER BY i") == [
        (2, 0, 9, 1), (2, 1, 3, 3), (2, 2, 1, 9),
    ]  # fmt: skip


def test_a_search(trial: Trial) -> None:
    walk(trial, SEARCH)
    row = trial.read_row("SELECT * FROM iris_found_summary WHERE model_selection_table = 'iris_winner'")
    assert (row["automl_method"], row["automl_params"]) == ("hyperband", "R=4, eta=2, skip_last=1")
    assert right(trial) > 0.6
    best = trial.sql(
        "SELECT mst_key FROM iris_found_info"
        " ORDER BY validation_metrics_final DESC, validation_loss_final LIMIT 1"
    )
    assert trial.sql("SELECT mst_key FROM iris_winner") == best
    assert trial.value("SELECT count(*) FROM iris_tried_info") == 4
    assert trial.value("SELECT count(*) FROM iris_choice") == 1


def test_a_model_of_ones_own(trial: Trial, one_model: str) -> None:
    walk(trial, OWN_MODEL)
    assert right(trial) > 0.6
    assert trial.sql("SELECT DISTINCT class_value FROM iris_likely ORDER BY 1") == [("0",), ("1",), ("2",)]
    assert trial.value("SELECT name FROM iris_brought") == "Gina"


def test_an_error_is_what_scripts_look_for(trial: Trial) -> None:
    with pytest.raises(psycopg2.Error, match="NULL/empty input table name"):
        trial.sql("SELECT madlib.train_test_split('', 'out', 0.8)")
    with pytest.raises(psycopg2.Error, match="already exists"):
        walk(
            trial,
            "SELECT madlib.train_test_split('iris_data', 'iris', 0.8, NULL, NULL, NULL, FALSE, TRUE);\n",
        )
