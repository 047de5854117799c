CREATE OR REPLACE VIEW cerebro._standing WITH (security_barrier) AS
SELECT
    c.run_id,
    c.mst_key,
    c.model_id,
    c.compile_params,
    c.fit_params,
    c.source_key,
    c.first_step,
    COALESCE(d.epochs, CASE WHEN r.search IS NULL OR c.pending THEN r.epochs ELSE 0 END) AS epochs,
    COALESCE(d.stopped, FALSE) AS stopped,
    COALESCE(d.deleted, FALSE) AS deleted,
    d.asked,
    c.config_key,
    c.fold,
    c.group_id
FROM (
    SELECT x.run_id, x.mst_key, x.model_id, x.compile_params, x.fit_params, x.source_key, COALESCE(x.source_step, 0) AS first_step, x.config_key, x.fold, x.group_id, FALSE AS pending
    FROM cerebro._config AS x
    UNION ALL
    SELECT q.run_id, q.mst_key, q.model_id, q.compile_params, q.fit_params, q.source_key, 0 AS first_step, NULL::integer AS config_key, NULL::integer AS fold, NULL::integer AS group_id, TRUE AS pending
    FROM cerebro._request AS q
    WHERE q.model_id IS NOT NULL AND NOT EXISTS (SELECT FROM cerebro._decision AS d WHERE d.request_id = q.request_id)
) AS c
JOIN cerebro._run AS r USING (run_id)
-- All at once: a look for each config of a run of ten thousand groups is slow, and seems so costly that the server compiles the query.
LEFT JOIN (
    SELECT
        x.run_id,
        x.mst_key,
        (pg_catalog.array_agg(x.epochs ORDER BY x.number DESC) FILTER (WHERE x.epochs IS NOT NULL))[1] AS epochs,
        (pg_catalog.array_agg(x.decision = 'stop' ORDER BY x.number DESC) FILTER (WHERE x.decision IN ('stop', 'resume')))[1] AS stopped,
        pg_catalog.bool_or(x.decision = 'delete') AS deleted,
        (pg_catalog.array_agg(x.decision ORDER BY x.number DESC) FILTER (WHERE x.pending))[1] AS asked
    FROM cerebro._decided AS x
    WHERE x.mst_key IS NOT NULL
    GROUP BY x.run_id, x.mst_key
) AS d ON d.run_id = c.run_id AND d.mst_key = c.mst_key;
COMMENT ON VIEW cerebro._standing IS 'Internal: the configs of each run with what was decided about them, those that are asked for included.';
