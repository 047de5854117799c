CREATE OR REPLACE FUNCTION cerebro.help(
    name text DEFAULT NULL,
    OUT task text,
    OUT call text,
    OUT what text
) RETURNS SETOF record
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
WITH listed (number, task, name) AS (
    VALUES
    (1, 'prepare rows', 'train_test_split'), (2, 'prepare rows', 'training_preprocessor_dl'),
    (3, 'prepare rows', 'validation_preprocessor_dl'), (4, 'say what to train', 'load_keras_model'),
    (5, 'say what to train', 'generate_model_configs'), (6, 'train', 'explain_fit'), (7, 'train', 'madlib_fit'),
    (8, 'train', 'madlib_fit_multiple_model'), (9, 'train', 'madlib_automl'), (10, 'watch', 'runs'),
    (11, 'watch', 'progress'), (12, 'watch', 'leaderboard'), (13, 'watch', 'metrics'), (14, 'watch', 'wait'),
    (15, 'steer', 'pause'), (16, 'steer', 'resume'), (17, 'steer', 'stop'), (18, 'steer', 'stop_config'),
    (19, 'steer', 'clone_config'), (20, 'steer', 'add_configs'), (21, 'use a model', 'predict'),
    (22, 'use a model', 'madlib_predict'), (23, 'use a model', 'madlib_evaluate'),
    (24, 'look after it', 'diagnose'), (25, 'look after it', 'sizes'), (26, 'look after it', 'forget'),
    (27, 'look after it', 'grant_usage'), (28, 'look after it', 'version')
), present (name, call, signature, what, oid) AS (
    SELECT
        p.proname::text,
        'cerebro.' || p.proname || '(' || CASE WHEN p.pronargs > 0 THEN '…' ELSE '' END || ')',
        'cerebro.' || p.proname || '(' || pg_get_function_arguments(p.oid) || ')',
        obj_description(p.oid, 'pg_proc'),
        p.oid
    FROM pg_proc AS p WHERE p.pronamespace = 'cerebro'::regnamespace AND p.proname NOT LIKE '\_%'
    UNION ALL
    SELECT c.relname::text, 'cerebro.' || c.relname, 'cerebro.' || c.relname, obj_description(c.oid, 'pg_class'), c.oid
    FROM pg_class AS c
    WHERE c.relnamespace = 'cerebro'::regnamespace AND c.relkind = 'v' AND c.relname NOT LIKE '\_%'
), told (name, call, signature, what, oid) AS (
    -- A second name has what its first name does.
    SELECT x.name, x.call, x.signature, COALESCE((
        SELECT y.what FROM present AS y WHERE x.what = 'The same as ' || y.name || '.' ORDER BY y.oid LIMIT 1
    ), x.what), x.oid
    FROM present AS x
), chosen AS (
    SELECT l.number, l.task, x.call, regexp_replace(x.what, '(\. |: | \(|, ).*', '') AS what
    FROM listed AS l
    CROSS JOIN LATERAL (SELECT y.* FROM told AS y WHERE y.name = l.name ORDER BY y.oid LIMIT 1) AS x
    WHERE help.name IS NULL
    UNION ALL
    SELECT 0, COALESCE((SELECT l.task FROM listed AS l WHERE l.name = x.name), ''), x.signature, x.what
    FROM told AS x WHERE x.name = regexp_replace(lower(help.name), '^cerebro\.', '')
)
SELECT o.task, o.call, rtrim(o.what, '.') FROM chosen AS o ORDER BY o.number, o.call
$$;
COMMENT ON FUNCTION cerebro.help(text) IS
'Lists what there is by task, the views included. With the name of a function or view it gives all its parameters and what it does.';
