CREATE OR REPLACE VIEW cerebro.progress WITH (security_barrier) AS
WITH now_running AS (
    -- A segment session names what it does in its application_name, which other sessions see at once.
    SELECT
        (m.words)[1] AS doing,
        (m.words)[2]::bigint AS run_id,
        (m.words)[3]::integer AS mst_key,
        (m.words)[5]::integer AS segment
    FROM pg_catalog.pg_stat_activity AS a
    CROSS JOIN LATERAL pg_catalog.regexp_matches(
        a.application_name, '^cerebro (visit|evaluate|merge) run=(\d{1,18}) config=(\d{1,9}) epoch=(\d{1,9}) segment=(\d{1,9})$'
    ) AS m (words)
    WHERE a.datname = pg_catalog.current_database()
        -- Any role may call itself so; only a superuser's session can be one.
        AND a.usesysid IN (SELECT o.oid FROM pg_catalog.pg_roles AS o WHERE o.rolsuper)
)

SELECT
    r.run_id,
    c.mst_key,
    c.model_id,
    CASE
        WHEN f.mst_key IS NOT NULL THEN 'failed'
        WHEN r.status <> 'running' AND v.visits_done < r.epochs * r.segments THEN r.status
        WHEN n.doing = 'visit' THEN 'training'
        WHEN n.doing IS NOT NULL THEN 'evaluating'
        WHEN v.visits_done = r.epochs * r.segments THEN 'finished'
        ELSE 'waiting'
    END AS status,
    LEAST(v.visits_done / r.segments + 1, r.epochs) AS epoch,
    r.epochs,
    v.visits_done,
    r.epochs * r.segments AS visits_total,
    n.segment,
    v.loss,
    CASE WHEN r.status = 'running' AND f.mst_key IS NULL
        THEN v.seconds_per_visit * (r.epochs * r.segments - v.visits_done) END AS seconds_left,
    f.reason AS failure,
    c.compile_params,
    c.fit_params
FROM cerebro.runs AS r
JOIN cerebro._config AS c USING (run_id)
LEFT JOIN cerebro._failure AS f ON f.run_id = c.run_id AND f.mst_key = c.mst_key
LEFT JOIN LATERAL (
    SELECT x.doing, x.segment FROM now_running AS x
    WHERE x.run_id = c.run_id AND x.mst_key = c.mst_key ORDER BY x.doing DESC LIMIT 1
) AS n ON TRUE
CROSS JOIN LATERAL (
    SELECT
        pg_catalog.count(*) AS visits_done,
        pg_catalog.avg(pg_catalog.date_part('epoch', x.ended_at - x.started_at)) AS seconds_per_visit,
        (pg_catalog.array_agg(x.loss ORDER BY x.step DESC))[1] AS loss
    FROM cerebro._visit AS x
    WHERE x.run_id = c.run_id AND x.mst_key = c.mst_key
) AS v;
COMMENT ON VIEW cerebro.progress IS 'Where each config of your runs stands now.';
COMMENT ON COLUMN cerebro.progress.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.progress.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.progress.model_id IS 'Architecture';
COMMENT ON COLUMN cerebro.progress.status IS 'waiting, training, evaluating, finished, failed, or interrupted';
COMMENT ON COLUMN cerebro.progress.epoch IS 'Epoch that it is in, counted from 1';
COMMENT ON COLUMN cerebro.progress.epochs IS 'Number of epochs asked for';
COMMENT ON COLUMN cerebro.progress.visits_done IS 'Visits that are committed';
COMMENT ON COLUMN cerebro.progress.visits_total IS 'Visits that were asked for: epochs x segments';
COMMENT ON COLUMN cerebro.progress.segment IS 'Segment that works on it at this moment';
COMMENT ON COLUMN cerebro.progress.loss IS 'Loss over its last visit';
COMMENT ON COLUMN cerebro.progress.seconds_left IS 'Time that its remaining visits take, going by those it has had';
COMMENT ON COLUMN cerebro.progress.failure IS 'Why it failed; NULL if it did not';
COMMENT ON COLUMN cerebro.progress.compile_params IS 'Compile parameters of the config';
COMMENT ON COLUMN cerebro.progress.fit_params IS 'Fit parameters of the config';
