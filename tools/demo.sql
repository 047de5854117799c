\set SHOW_CONTEXT never
\pset footer off
SET search_path = demo;

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
SELECT cerebro.load_keras_model('nets', $$
    {"module": "keras", "class_name": "Sequential", "config": {"name": "mlp", "layers": [
        {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 64]}},
        {"module": "keras.layers", "class_name": "Dense", "config": {"units": 64, "activation": "relu"}},
        {"module": "keras.layers", "class_name": "Dense", "config": {"units": 64, "activation": "relu"}},
        {"module": "keras.layers", "class_name": "Dense", "config": {"units": 10, "activation": "softmax"}}]}}
$$, name => 'mlp') \g /dev/null
SELECT cerebro.load_keras_model('nets', $$
    {"module": "keras", "class_name": "Sequential", "config": {"name": "cnn", "layers": [
        {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [null, 64]}},
        {"module": "keras.layers", "class_name": "Reshape", "config": {"target_shape": [8, 8, 1]}},
        {"module": "keras.layers", "class_name": "Conv2D", "config": {"filters": 16, "kernel_size": [3, 3], "activation": "relu"}},
        {"module": "keras.layers", "class_name": "Conv2D", "config": {"filters": 32, "kernel_size": [3, 3], "activation": "relu"}},
        {"module": "keras.layers", "class_name": "Flatten", "config": {}},
        {"module": "keras.layers", "class_name": "Dense", "config": {"units": 10, "activation": "softmax"}}]}}
$$, name => 'cnn') \g /dev/null
SELECT cerebro.generate_model_configs(
    'nets', 'configs', ARRAY[1, 2],
    $${'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
       'optimizer_params_list': [{'optimizer': ['Adam'], 'learning_rate': [0.03, 0.01, 0.003, 0.0003]}]}$$,
    $${'batch_size': [16, 64]}$$) \g /dev/null
SELECT model_id, compile_params, fit_params FROM configs ORDER BY mst_key LIMIT 2;

\echo '== Training'
SELECT cerebro.madlib_fit_multiple_model(
    'train_packed', 'models', 'configs', 10,
    validation_table => 'validation_packed', metrics_compute_frequency => 2, name => 'demo',
    options => '{"seed": 42}') \g /dev/null


\echo
\echo '== Leaderboard: the best five of sixteen'
SELECT
    rank,
    mst_key,
    n.name AS net,
    substring(compile_params, 'learning_rate=([^)]*)') AS learning_rate,
    substring(fit_params, 'batch_size=(\d+)') AS batch_size,
    round(value::numeric, 4) AS accuracy,
    round(loss::numeric, 4) AS loss
FROM cerebro.leaderboard
JOIN models_summary USING (run_id)
JOIN (SELECT model_id, name FROM nets) AS n USING (model_id)
ORDER BY rank, mst_key LIMIT 5;

CREATE VIEW best AS
SELECT mst_key, value AS accuracy
FROM cerebro.leaderboard JOIN (SELECT run_id FROM models_summary) AS s USING (run_id)
ORDER BY rank, mst_key LIMIT 1;

\echo '== Rows that the nets have not seen, by the best of them'
SELECT id, label, class AS predicted, round(probability::numeric, 4) AS probability
FROM test, best, cerebro.predict('models', mst_key, pixels)
ORDER BY id LIMIT 5;

SELECT cerebro.madlib_predict('models', 'test', 'id', 'pixels', 'predictions', 'response', mst_key => mst_key)
FROM best \g /dev/null
SELECT
    count(*) AS rows,
    count(*) FILTER (WHERE class_value = label::text) AS "right",
    round(avg((class_value = label::text)::integer), 4) AS accuracy
FROM predictions JOIN test USING (id);

SELECT mst_key AS best FROM best \gset
\echo '== Go on:' :go_on
\echo '    SET search_path = demo;'
\echo '    SELECT rank, mst_key, value, loss, compile_params, fit_params FROM cerebro.leaderboard'
\echo '        WHERE run_id = (SELECT run_id FROM models_summary) ORDER BY rank;'
\echo '    SELECT id, label, class, probability FROM test, cerebro.predict(\'models\', ':best', pixels) WHERE class <> label::text;'
\echo '    SELECT cerebro.madlib_fit_multiple_model(\'train_packed\', \'models\', \'configs\', 5, warm_start => TRUE,'
\echo '        validation_table => \'validation_packed\');'
