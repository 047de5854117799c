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
    (1, 'prepare rows', 'describe_columns'), (2, 'prepare rows', 'train_test_split'), (3, 'prepare rows', 'windows'),
    (4, 'prepare rows', 'labels'), (5, 'prepare rows', 'relate'), (6, 'prepare rows', 'propagate'),
    (7, 'prepare rows', 'refresh_propagation'), (8, 'prepare rows', 'training_preprocessor_dl'),
    (9, 'prepare rows', 'validation_preprocessor_dl'), (10, 'prepare rows', 'append_rows'),
    (11, 'say what to train', 'load_net'), (12, 'say what to train', 'show_net'),
    (13, 'say what to train', 'load_keras_model'), (14, 'say what to train', 'generate_model_configs'),
    (15, 'train', 'train'), (16, 'train', 'train_forecast'), (17, 'train', 'explain_fit'), (18, 'train', 'madlib_fit'),
    (19, 'train', 'madlib_fit_multiple_model'), (20, 'train', 'madlib_automl'), (21, 'watch', 'runs'),
    (22, 'watch', 'progress'), (23, 'watch', 'leaderboard'), (24, 'watch', 'metrics'), (25, 'watch', 'advise'),
    (26, 'watch', 'wait'), (27, 'steer', 'pause'), (28, 'steer', 'resume'), (29, 'steer', 'stop'),
    (30, 'steer', 'stop_config'), (31, 'steer', 'clone_config'), (32, 'steer', 'add_configs'),
    (33, 'use a model', 'predict'), (34, 'use a model', 'predict_query'), (35, 'use a model', 'forecast'),
    (36, 'use a model', 'smooth'), (37, 'use a model', 'predict_related'), (38, 'use a model', 'explain_predict'),
    (39, 'use a model', 'explain_forecast'),
    (40, 'use a model', 'madlib_predict'), (41, 'use a model', 'madlib_evaluate'),
    (42, 'use a model', 'confusion_matrix'), (43, 'use a model', 'evaluate_by'), (44, 'use a model', 'worst_rows'),
    (45, 'use a model', 'importance'), (46, 'use a model', 'register'), (47, 'look after it', 'check'),
    (48, 'look after it', 'model_health'), (49, 'look after it', 'retrain'), (50, 'look after it', 'schedule'),
    (51, 'look after it', 'drift'), (52, 'look after it', 'diagnose'), (53, 'look after it', 'sizes'),
    (54, 'look after it', 'forget'), (55, 'look after it', 'grant_usage'), (56, 'look after it', 'grant_model_access'),
    (57, 'look after it', 'grant_model'), (58, 'look after it', 'version')
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
), asked (word) AS (
    SELECT left(regexp_replace(lower(help.name), '^cerebro\.', ''), 63)
), letters (word, letter, number) AS (
    -- Names of the same letters are alike, whatever is swapped or missing.
    SELECT w.word, substr(w.word, g.place, 1), row_number() OVER (PARTITION BY w.word, substr(w.word, g.place, 1))
    FROM (SELECT a.word FROM asked AS a UNION SELECT x.name FROM present AS x) AS w
    CROSS JOIN LATERAL generate_series(1, length(w.word)) AS g (place)
), alike (name, likeness) AS (
    SELECT
        x.name,
        CASE WHEN position(a.word IN x.name) > 0 OR position(a.word IN lower(x.what)) > 0 THEN 1 ELSE 0 END
        + 2.0 * (
            SELECT count(*) FROM letters AS p JOIN letters AS q ON q.letter = p.letter AND q.number = p.number
            WHERE p.word = a.word AND q.word = x.name
        ) / (length(a.word) + length(x.name))
    FROM (SELECT y.name, string_agg(y.what, ' ') AS what FROM told AS y GROUP BY y.name) AS x CROSS JOIN asked AS a
    WHERE length(a.word) > 1 AND NOT EXISTS (SELECT FROM present AS y WHERE y.name = a.word)
), chosen AS (
    SELECT l.number, l.task, x.call, regexp_replace(x.what, '(\. |: | \(|, ).*', '') AS what
    FROM listed AS l
    CROSS JOIN LATERAL (SELECT y.* FROM told AS y WHERE y.name = l.name ORDER BY y.oid LIMIT 1) AS x
    WHERE help.name IS NULL
    UNION ALL
    SELECT 0, COALESCE((SELECT l.task FROM listed AS l WHERE l.name = x.name), ''), x.signature, x.what
    FROM told AS x JOIN asked AS a ON a.word = x.name
    UNION ALL
    SELECT
        row_number() OVER (ORDER BY n.likeness DESC, n.name),
        format('nothing is called "%s"; like it', help.name), x.call, regexp_replace(x.what, '(\. |: | \(|, ).*', '')
    FROM (SELECT y.* FROM alike AS y WHERE y.likeness >= 0.75 ORDER BY y.likeness DESC, y.name LIMIT 5) AS n
    CROSS JOIN LATERAL (SELECT y.* FROM told AS y WHERE y.name = n.name ORDER BY y.oid LIMIT 1) AS x
    UNION ALL
    SELECT 0, format('nothing is called "%s"', help.name), 'cerebro.help()', 'lists what there is'
    WHERE help.name IS NOT NULL AND NOT EXISTS (SELECT FROM alike AS y WHERE y.likeness >= 0.75)
        AND NOT EXISTS (SELECT FROM present AS x JOIN asked AS a ON a.word = x.name)
)
SELECT o.task, o.call, rtrim(o.what, '.') FROM chosen AS o ORDER BY o.number, o.call
$$;
COMMENT ON FUNCTION cerebro.help(text) IS
'Lists functions and views by task. With the name of a function or view, it shows all parameters and what the function or view does. With another word, it lists those with a similar name or with the word in their description.';
