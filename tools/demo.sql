\set VERBOSITY terse
\pset footer off
SET search_path = demo, public;

\echo '== Rows: images of handwritten digits, 8 x 8 pixels, split in SQL'
CREATE VIEW train AS SELECT * FROM digits WHERE id % 5 < 3;
CREATE VIEW validation AS SELECT * FROM digits WHERE id % 5 = 3;
CREATE VIEW test AS SELECT * FROM digits WHERE id % 5 = 4;
SELECT
    (SELECT count(*) FROM train) AS train,
    (SELECT count(*) FROM validation) AS validation,
    (SELECT count(*) FROM test) AS "test (never shown to the nets)";

SELECT cerebro.training_preprocessor_dl('train', 'train_packed', 'label', 'pixels', normalizing_const => 16) \g /dev/null
SELECT cerebro.validation_preprocessor_dl('validation', 'validation_packed', 'label', 'pixels', 'train_packed') \g /dev/null

\echo '== Configs: 2 architectures x 4 learning rates x 2 batch sizes'
SELECT cerebro.load_keras_model('arch', $$
    {"module": "keras", "class_name": "Sequential", "config": {"name": "mlp", "layers": [
        {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 64]}},
        {"module": "keras.layers", "class_name": "Dense", "config": {"units": 64, "activation": "relu"}},
        {"module": "keras.layers", "class_name": "Dense", "config": {"units": 64, "activation": "relu"}},
        {"module": "keras.layers", "class_name": "Dense", "config": {"units": 10, "activation": "softmax"}}]}}
$$, name => 'mlp') \g /dev/null
SELECT cerebro.load_keras_model('arch', $$
    {"module": "keras", "class_name": "Sequential", "config": {"name": "cnn", "layers": [
        {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 64]}},
        {"module": "keras.layers", "class_name": "Reshape", "config": {"target_shape": [8, 8, 1]}},
        {"module": "keras.layers", "class_name": "Conv2D", "config": {"filters": 16, "kernel_size": [3, 3], "activation": "relu"}},
        {"module": "keras.layers", "class_name": "Conv2D", "config": {"filters": 32, "kernel_size": [3, 3], "activation": "relu"}},
        {"module": "keras.layers", "class_name": "Flatten", "config": {}},
        {"module": "keras.layers", "class_name": "Dense", "config": {"units": 10, "activation": "softmax"}}]}}
$$, name => 'cnn') \g /dev/null
SELECT cerebro.generate_model_configs(
    'arch', 'configs', ARRAY[1, 2],
    $${'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
       'optimizer_params_list': [{'optimizer': ['Adam'], 'learning_rate': [0.03, 0.01, 0.003, 0.0003]}]}$$,
    $${'batch_size': [16, 64]}$$) \g /dev/null
SELECT model_id, compile_params, fit_params FROM configs ORDER BY mst_key LIMIT 2;

\echo '== Training'
SELECT cerebro.madlib_fit_multiple_model(
    'train_packed', 'models', 'configs', 10,
    validation_table => 'validation_packed', metrics_compute_frequency => 2, name => 'demo',
    options => '{"seed": 42}') \g /dev/null

SELECT run_id AS run FROM models_summary \gset

\echo
\echo '== Leaderboard: the best five and the last'
SELECT rank, mst_key, a.name AS arch, substring(compile_params, 'learning_rate=([^)]*)') AS learning_rate,
    substring(fit_params, 'batch_size=(\d+)') AS batch_size, round(value::numeric, 4) AS accuracy, round(loss::numeric, 4) AS loss
FROM cerebro.leaderboard JOIN arch AS a USING (model_id)
WHERE run_id = :run AND (rank <= 5 OR rank >= 16)
ORDER BY rank, mst_key;

SELECT mst_key AS best FROM cerebro.leaderboard WHERE run_id = :run ORDER BY rank, mst_key LIMIT 1 \gset
\echo '== Rows that the nets have not seen, by the best config'
SELECT id, label, p.class_value AS predicted, round(p.prob::numeric, 4) AS probability
FROM test, cerebro.predict('models', :best, pixels) AS p
ORDER BY id LIMIT 5;

SELECT cerebro.madlib_predict('models', 'test', 'id', 'pixels', 'predictions', 'response', mst_key => :best) \g /dev/null
SELECT count(*) AS rows, count(*) FILTER (WHERE class_value = label::text) AS right,
    round(avg((class_value = label::text)::integer), 4) AS accuracy
FROM predictions JOIN test USING (id);
