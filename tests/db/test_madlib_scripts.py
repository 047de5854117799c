"""The iris scripts of MADlib's documentation run unchanged with cerebro_madlib, or in schema cerebro."""

from __future__ import annotations

import re

import pytest
from sklearn.datasets import load_iris

from fixtures import execute
from trial import Trial

NAMES = ["Iris-setosa", "Iris-versicolor", "Iris-virginica"]


def dense(number: int, units: int, activation: str, first: str = "") -> str:
    """Return the JSON of a Dense layer as Keras 2 wrote it."""
    return (
        '{"class_name": "Dense", "config": {"kernel_initializer": {"class_name": "VarianceScaling", "config":'
        ' {"distribution": "uniform", "scale": 1.0, "seed": null, "mode": "fan_avg"}}, "name": "dense_'
        f'{number}", "kernel_constraint": null, "bias_regularizer": null, "bias_constraint": null, "dtype":'
        f' "float32", "activation": "{activation}", "trainable": true, "kernel_regularizer": null,'
        ' "bias_initializer": {"class_name": "Zeros", "config": {}}, "units": '
        f'{units}, {first}"use_bias": true, "activity_regularizer": null}}}}'
    )


def keras_2(*units: int) -> str:
    """Return the JSON of a net as Keras 2 wrote it: Dense layers, and a softmax over three classes."""
    layers = [dense(1, units[0], "relu", '"batch_input_shape": [null, 4], ')]
    layers += [dense(number, width, "relu") for number, width in enumerate(units[1:], 2)]
    layers.append(dense(len(units) + 1, 3, "softmax"))
    config = ", ".join(layers)
    return (
        f'{{"class_name": "Sequential", "keras_version": "2.1.6", "config": [{config}],'
        ' "backend": "tensorflow"}'
    )


# What the documentation's page on model selection runs, in its order.
SCRIPT = f"""
DROP TABLE IF EXISTS iris_train_packed, iris_train_packed_summary;
SELECT madlib.training_preprocessor_dl('iris_train',        -- Source table
                                       'iris_train_packed',  -- Output table
                                       'class_text',        -- Dependent variable
                                       'attributes'         -- Independent variable
                                        );
DROP TABLE IF EXISTS iris_test_packed, iris_test_packed_summary;
SELECT madlib.validation_preprocessor_dl('iris_test',          -- Source table
                                         'iris_test_packed',  -- Output table
                                         'class_text',          -- Dependent variable
                                         'attributes',          -- Independent variable
                                         'iris_train_packed'    -- From training preprocessor step
                                          );
DROP TABLE IF EXISTS model_arch_library;
SELECT madlib.load_keras_model('model_arch_library',  -- Output table,
$$
{keras_2(10, 10)}
$$
::json,         -- JSON blob
                               NULL,                  -- Weights
                               'Sophie',              -- Name
                               'MLP with 1 hidden layer'       -- Descr
);
SELECT madlib.load_keras_model('model_arch_library',  -- Output table,
$$
{keras_2(10, 10, 10)}
$$
::json,         -- JSON blob
                               NULL,                  -- Weights
                               'Maria',               -- Name
                               'MLP with 2 hidden layers'       -- Descr
);
DROP TABLE IF EXISTS mst_table, mst_table_summary;
SELECT madlib.generate_model_configs(
                                        'model_arch_library', -- model architecture table
                                        'mst_table',          -- model selection table output
                                         ARRAY[1,2],              -- model ids from model architecture table
                                         $$
                                            {{'loss': ['categorical_crossentropy'],
                            'optimizer_params_list': [ {{'optimizer': ['Adam'], 'lr': [0.1, 0.01]}} ],
                                             'metrics': ['accuracy']}}
                                         $$,                  -- compile_param_grid
                                         $$
                                         {{ 'batch_size': [4, 8],
                                           'epochs': [1]
                                         }}
                                         $$,                  -- fit_param_grid
                                         'grid'               -- search_type
                                         );
DROP TABLE IF EXISTS iris_multi_model, iris_multi_model_summary, iris_multi_model_info;
SELECT madlib.madlib_keras_fit_multiple_model('iris_train_packed',    -- source_table
                                              'iris_multi_model',     -- model_output_table
                                              'mst_table',            -- model_selection_table
                                              10,                     -- num_iterations
                                              FALSE                   -- use gpus
                                             );
"""
SECOND_SCRIPT = """
DROP TABLE IF EXISTS mst_table_2, mst_table_2_summary;
SELECT madlib.load_model_selection_table('model_arch_library', -- model architecture table
                                         'mst_table_2',          -- model selection table output
                                          ARRAY[1,2],          -- model ids from model architecture table
                                          ARRAY[                   -- compile_params
                                              $$loss='categorical_crossentropy',optimizer='Adam(lr=0.1)',metrics=['accuracy']$$,
                                              $$loss='categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy']$$,
                                              $$loss='categorical_crossentropy',optimizer='Adam(lr=0.001)',metrics=['accuracy']$$
                                          ],
                                          ARRAY[                    -- fit_params
                                              $$batch_size=4,epochs=1$$,
                                              $$batch_size=8,epochs=1$$
                                          ]
                                         );
DROP TABLE IF EXISTS iris_multi_model, iris_multi_model_summary, iris_multi_model_info;
SELECT madlib.madlib_keras_fit_multiple_model('iris_train_packed',    -- source_table
                                              'iris_multi_model',     -- model_output_table
                                              'mst_table_2',            -- model_selection_table
                                              3,                     -- num_iterations
                                              FALSE,                  -- use gpus
                                             'iris_test_packed',      -- validation dataset
                                              1,                      -- metrics compute frequency
                                              FALSE,                  -- warm start
                                              'Sophie L.',            -- name
                                              'Model selection for iris dataset'  -- description
                                             );
SELECT madlib.madlib_keras_fit_multiple_model('iris_train_packed',    -- source_table
                                              'iris_multi_model',     -- model_output_table
                                              'mst_table_2',            -- model_selection_table
                                              3,                     -- num_iterations
                                              FALSE,                  -- use gpus
                                             'iris_test_packed',      -- validation dataset
                                              1,                      -- metrics compute frequency
                                              TRUE,                   -- warm start
                                              'Simple MLP for iris dataset'  -- name
                                             );
"""
PREDICT_SCRIPT = """
DROP TABLE IF EXISTS iris_validate;
SELECT madlib.madlib_keras_evaluate('iris_multi_model',  -- model
                                   'iris_test_packed',  -- test table
                                   'iris_validate',     -- output table
                                    FALSE,              -- use gpus
                                    3                   -- mst_key to use
                                   );
DROP TABLE IF EXISTS iris_predict;
SELECT madlib.madlib_keras_predict('iris_multi_model', -- model
                                   'iris_test',  -- test_table
                                   'id',  -- id column
                                   'attributes', -- independent var
                                   'iris_predict',  -- output table
                                    'response',      -- prediction type
                                    FALSE,            -- use gpus
                                    3                   -- mst_key to use
                                   );
"""


@pytest.fixture(scope="module", autouse=True)
def iris(trial: Trial) -> None:
    """Make the tables of the documentation, but split them by every fifth row and not at random."""
    features, labels = load_iris(return_X_y=True)
    rows = [
        (number, list(map(float, x)), NAMES[y], int(y) + 1)
        for number, (x, y) in enumerate(zip(features, labels, strict=True), 1)
    ]
    trial.sql("CREATE EXTENSION cerebro_madlib")
    trial.table("iris_data", "id serial, attributes numeric[], class_text varchar, class integer", rows)
    trial.sql("CREATE TABLE iris_train AS SELECT * FROM iris_data WHERE mod(id, 5) <> 0")
    trial.sql("CREATE TABLE iris_test AS SELECT * FROM iris_data WHERE mod(id, 5) = 0")


def run(trial: Trial, script: str, schema: str) -> None:
    """Run a script's statements one by one, as psql does, with this schema in place of madlib."""
    text = re.sub(r"--.*", "", script.replace("madlib.", f"{schema}."))
    for statement in text.split(";\n"):
        if statement.strip():
            execute(trial.connection, statement)


@pytest.mark.parametrize("schema", ["cerebro", "madlib"])
def test_model_selection_on_iris(trial: Trial, schema: str) -> None:
    run(trial, SCRIPT, schema)
    rows = trial.sql("SELECT compile_params, fit_params FROM mst_table ORDER BY mst_key")
    assert len(rows) == 8
    assert {"batch_size=4,epochs=1", "batch_size=8,epochs=1"} == {fit for _, fit in rows}
    assert all("'Adam(lr=0.1)'" in text or "'Adam(lr=0.01)'" in text for text, _ in rows)
    best = trial.read_row("SELECT * FROM iris_multi_model_info ORDER BY training_metrics_final DESC LIMIT 1")
    assert best["training_metrics_final"] > 0.9
    assert best["metrics_type"] == ["accuracy"]
    assert trial.value("SELECT count(*) FROM iris_multi_model WHERE model_weights IS NOT NULL") == 8
    summary = trial.read_row("SELECT * FROM iris_multi_model_summary")
    assert summary["class_text_class_values"] == NAMES
    assert (summary["num_iterations"], summary["metrics_iters"]) == (10, [10])
    assert trial.sql("SELECT name, description FROM model_arch_library ORDER BY model_id") == [
        ("Sophie", "MLP with 1 hidden layer"),
        ("Maria", "MLP with 2 hidden layers"),
    ]


def test_validation_and_warm_start_on_iris(trial: Trial) -> None:
    run(trial, SECOND_SCRIPT, "madlib")
    assert trial.value("SELECT count(*) FROM iris_multi_model_info") == 12
    row = trial.read_row("SELECT * FROM iris_multi_model_info ORDER BY validation_loss_final LIMIT 1")
    assert len(row["validation_loss"]) == len(row["training_metrics"]) == 3
    assert row["validation_metrics_final"] > 0.8
    summary = trial.read_row("SELECT * FROM iris_multi_model_summary")
    assert (summary["warm_start"], summary["name"]) == (True, "Simple MLP for iris dataset")
    assert summary["description"] is None


def test_evaluate_and_predict_on_iris(trial: Trial) -> None:
    run(trial, PREDICT_SCRIPT, "madlib")
    evaluated = trial.read_row("SELECT * FROM iris_validate")
    info = trial.read_row("SELECT * FROM iris_multi_model_info WHERE mst_key = 3")
    assert evaluated["metric"] == pytest.approx(info["validation_metrics_final"])
    assert evaluated["loss"] == pytest.approx(info["validation_loss_final"])
    right = trial.value(
        "SELECT count(*) FROM iris_predict JOIN iris_test USING (id) WHERE class_value = class_text"
    )
    assert right / 30 == pytest.approx(evaluated["metric"])
