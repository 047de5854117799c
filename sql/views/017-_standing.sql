CREATE OR REPLACE VIEW cerebro._standing WITH (security_barrier) AS
SELECT
    c.run_id,
    c.mst_key,
    c.model_id,
    c.compile_params,
    c.fit_params,
    c.source_key,
    c.first_step,
    COALESCE(
        (SELECT x.epochs FROM cerebro._decided AS x
            WHERE x.run_id = c.run_id AND x.mst_key = c.mst_key AND x.epochs IS NOT NULL
            ORDER BY x.number DESC LIMIT 1),
        CASE WHEN r.search IS NULL OR c.pending THEN r.epochs ELSE 0 END
    ) AS epochs,
    COALESCE((
        SELECT x.decision = 'stop' FROM cerebro._decided AS x
        WHERE x.run_id = c.run_id AND x.mst_key = c.mst_key AND x.decision IN ('stop', 'resume')
        ORDER BY x.number DESC LIMIT 1
    ), FALSE) AS stopped,
    EXISTS (
        SELECT FROM cerebro._decided AS x
        WHERE x.run_id = c.run_id AND x.mst_key = c.mst_key AND x.decision = 'delete'
    ) AS deleted,
    (
        SELECT x.decision FROM cerebro._decided AS x
        WHERE x.run_id = c.run_id AND x.mst_key = c.mst_key AND x.pending ORDER BY x.number DESC LIMIT 1
    ) AS asked,
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
JOIN cerebro._run AS r USING (run_id);
COMMENT ON VIEW cerebro._standing IS 'Internal: the configs of each run with what was decided about them, those that are asked for included.';
