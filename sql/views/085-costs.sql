CREATE OR REPLACE VIEW cerebro.costs WITH (security_barrier) AS
SELECT
    r.run_id,
    pg_catalog.pg_get_userbyid(r.owner)::text AS owner,
    pg_catalog.date_trunc('month', r.started_at)::date AS month,
    r.model_table,
    t.core_seconds,
    t.gpu_seconds,
    s.hopped_bytes AS moved_bytes,
    s.state_bytes + s.weight_bytes + s.frozen_bytes AS stored_bytes,
    CASE WHEN p.core_price IS NOT NULL OR p.gpu_price IS NOT NULL
        THEN (COALESCE(p.core_price, 0) * t.core_seconds + COALESCE(p.gpu_price, 0) * t.gpu_seconds) / 3600 END AS price,
    CASE WHEN p.core_watts IS NOT NULL OR p.gpu_watts IS NOT NULL
        THEN (COALESCE(p.core_watts, 0) * t.core_seconds + COALESCE(p.gpu_watts, 0) * t.gpu_seconds) / 3600 END AS watt_hours
-- For all runs at once, as in the view of runs.
FROM cerebro._visible_run AS r
JOIN cerebro.sizes AS s ON s.run_id = r.run_id
LEFT JOIN (
    SELECT
        x.run_id,
        pg_catalog.sum(x.cpu_seconds) AS cpu_seconds,
        pg_catalog.sum(pg_catalog.date_part('epoch', x.ended_at - x.started_at)) AS seconds
    FROM cerebro._visible_visit AS x
    WHERE x.segment >= 0
    GROUP BY x.run_id
) AS v ON v.run_id = r.run_id
LEFT JOIN (
    SELECT x.run_id, pg_catalog.sum(x.seconds) AS seconds FROM cerebro._visible_evaluation AS x
    GROUP BY x.run_id
) AS e ON e.run_id = r.run_id
CROSS JOIN (
    SELECT
        pg_catalog.max(x.value) FILTER (WHERE x.name = 'price_per_core_hour')::double precision AS core_price,
        pg_catalog.max(x.value) FILTER (WHERE x.name = 'price_per_gpu_hour')::double precision AS gpu_price,
        pg_catalog.max(x.value) FILTER (WHERE x.name = 'watts_per_core')::double precision AS core_watts,
        pg_catalog.max(x.value) FILTER (WHERE x.name = 'watts_per_gpu')::double precision AS gpu_watts
    FROM cerebro.settings AS x
) AS p
CROSS JOIN LATERAL (
    SELECT
        COALESCE(v.cpu_seconds, 0) + r.threads * COALESCE(e.seconds, 0) AS core_seconds,
        CASE WHEN r.use_gpus THEN COALESCE(v.seconds, 0) + COALESCE(e.seconds, 0) ELSE 0 END AS gpu_seconds
) AS t;
COMMENT ON VIEW cerebro.costs IS 'What your runs have cost: time of cores and GPUs, bytes moved and stored, and money and energy if an administrator has set what they cost.';
COMMENT ON COLUMN cerebro.costs.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.costs.owner IS 'Role that made the call';
COMMENT ON COLUMN cerebro.costs.month IS 'First day of the month in which the run began';
COMMENT ON COLUMN cerebro.costs.model_table IS 'Table that gets the models';
COMMENT ON COLUMN cerebro.costs.core_seconds IS 'Processor time of all visits, and the time of all evaluations times the threads of a session';
COMMENT ON COLUMN cerebro.costs.gpu_seconds IS 'Time of visits and evaluations on GPUs; 0 for a run without GPUs';
COMMENT ON COLUMN cerebro.costs.moved_bytes IS 'Bytes of all states that visits have made';
COMMENT ON COLUMN cerebro.costs.stored_bytes IS 'Bytes that the run keeps in the database besides its result tables';
COMMENT ON COLUMN cerebro.costs.price IS 'Price of this time by the settings price_per_core_hour and price_per_gpu_hour; NULL if neither is set';
COMMENT ON COLUMN cerebro.costs.watt_hours IS 'Energy of this time by the settings watts_per_core and watts_per_gpu; NULL if neither is set';
