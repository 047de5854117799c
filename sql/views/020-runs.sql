CREATE OR REPLACE VIEW cerebro.runs WITH (security_barrier) AS
SELECT
    r.run_id,
    pg_catalog.pg_get_userbyid(r.owner)::text AS owner,
    -- A run whose driving session is gone is not running, whatever its last row says.
    CASE
        WHEN e.event = 'running' AND NOT l.goes_on THEN 'interrupted'
        WHEN e.event = 'running' AND p.paused THEN 'paused'
        ELSE e.event
    END AS status,
    r.name,
    r.description,
    r.source_table,
    r.validation_table,
    r.model_table,
    COALESCE(c.configs, 0) AS configs,
    COALESCE(f.failed_configs, 0) AS failed_configs,
    r.epochs,
    r.segments,
    COALESCE(v.visits_done, 0) AS visits_done,
    COALESCE(c.epochs * r.segments - c.first_steps, 0)::bigint AS visits_total,
    r.seed,
    r.topology,
    r.started_at,
    CASE WHEN l.goes_on THEN NULL ELSE GREATEST(e.at, v.ended_at) END AS ended_at,
    pg_catalog.date_part('epoch',
        CASE WHEN l.goes_on
            THEN pg_catalog.clock_timestamp() ELSE GREATEST(e.at, v.ended_at) END - r.started_at) AS seconds,
    e.detail,
    r.search::pg_catalog.json ->> 'method' AS search,
    (r.packed_versions::pg_catalog.json -> r.source_table ->> 'version')::integer AS packed_version,
    o.groups,
    c.folds
-- All is looked up for all runs at once. A subquery that begins anew for each run brings all that it is joined with to where
-- the whole query runs, and there early versions of Greenplum 7 forget in which order rows come: a join with what is sorted
-- then loses rows. What is visible is decided in the scans that have the data, as in _visible_visit.
FROM cerebro._visible_run AS r
JOIN (
    SELECT
        x.run_id,
        pg_catalog.max(x.at) AS at,
        (pg_catalog.array_agg(x.event ORDER BY x.at DESC))[1] AS event,
        (pg_catalog.array_agg(x.detail ORDER BY x.at DESC))[1] AS detail
    FROM cerebro._run_event AS x
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS e ON e.run_id = r.run_id
LEFT JOIN (
    SELECT
        x.run_id,
        pg_catalog.count(*) AS configs,
        pg_catalog.sum(x.epochs) AS epochs,
        pg_catalog.sum(x.first_step) AS first_steps,
        pg_catalog.max(x.fold) AS folds
    FROM cerebro._standing AS x
    WHERE NOT x.deleted AND x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS c ON c.run_id = r.run_id
LEFT JOIN (
    SELECT
        x.run_id,
        (pg_catalog.array_agg(x.decision = 'pause' ORDER BY x.number DESC))[1] AS paused
    FROM cerebro._decided AS x
    WHERE x.mst_key IS NULL AND x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS p ON p.run_id = r.run_id
LEFT JOIN (
    SELECT
        x.run_id,
        pg_catalog.count(*) AS failed_configs
    FROM cerebro._failure AS x
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS f ON f.run_id = r.run_id
LEFT JOIN (
    SELECT
        x.run_id,
        pg_catalog.count(*) AS groups
    FROM cerebro._group AS x
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS o ON o.run_id = r.run_id
LEFT JOIN (
    -- The last visit of a config tells how many there are. Below zero are those whose states wait to be averaged.
    SELECT
        x.run_id,
        pg_catalog.sum(z.step - COALESCE(x.source_step, 0))::bigint AS visits_done,
        pg_catalog.max(z.ended_at) AS ended_at
    FROM cerebro._config AS x
    JOIN (
        SELECT w.run_id, w.mst_key, pg_catalog.max(w.step) AS step, pg_catalog.max(w.ended_at) AS ended_at
        FROM cerebro._visible_visit AS w
        WHERE w.step > 0
        GROUP BY w.run_id, w.mst_key
    ) AS z ON z.run_id = x.run_id AND z.mst_key = x.mst_key
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS v ON v.run_id = r.run_id
LEFT JOIN (
    SELECT d.run_id, (d.run_id & 2147483647) || ' ' || d.lock || ' ' || d.pid AS held FROM cerebro._driver AS d
) AS d ON d.run_id = r.run_id
CROSS JOIN (
    -- The advisory locks that the sessions behind runs hold: store/runs/drivers.py. Any role may take such a lock; behind a run
    -- is only the session that its row of _driver names, a superuser's unless the run is inline. Looked up once, before all else: Greenplum asks
    -- its segments for their locks, which it cannot do while they are at work on the rest of the query. There, too, an
    -- array of no rows is NULL.
    -- Locks are seen as they are, rows as they were when the query began: a run may have ended in between, and then the
    -- number that the last one to end has left is that of a transaction which the query does not see.
    -- A standby knows no locks of its primary's: there a run goes on until its rows say otherwise.
    SELECT
        COALESCE(ARRAY(
            SELECT x.classid || ' ' || x.objid || ' ' || x.pid || ' ' || o.rolsuper
            FROM pg_catalog.pg_locks AS x
            JOIN pg_catalog.pg_stat_activity AS a USING (pid)
            JOIN pg_catalog.pg_roles AS o ON o.oid = a.usesysid
            WHERE x.locktype = 'advisory' AND x.objsubid = 2 AND x.granted AND x.objid::bigint >> 16 = 3300
                AND x.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
        ), '{}') AS held,
        pg_catalog.pg_is_in_recovery()
        OR NOT pg_catalog.txid_visible_in_snapshot(
            (SELECT x.last_value FROM cerebro._last_ending AS x), pg_catalog.txid_current_snapshot()) AS unknown
    OFFSET 0
) AS k
CROSS JOIN LATERAL (
    SELECT e.event = 'running' AND (
        ARRAY[d.held || ' true', CASE WHEN r.topology = 'inline' THEN d.held || ' false' END] && k.held OR k.unknown
    ) AS goes_on
) AS l;
COMMENT ON VIEW cerebro.runs IS 'Your runs, one row each, both while they are under way and afterwards.';
COMMENT ON COLUMN cerebro.runs.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.runs.owner IS 'Role that made the call';
COMMENT ON COLUMN cerebro.runs.status IS 'running, paused, finished, failed (also if every config failed), or interrupted (cancelled, or its session is gone)';
COMMENT ON COLUMN cerebro.runs.name IS 'Name given in the call';
COMMENT ON COLUMN cerebro.runs.description IS 'Description given in the call';
COMMENT ON COLUMN cerebro.runs.source_table IS 'Packed table with the training rows';
COMMENT ON COLUMN cerebro.runs.validation_table IS 'Packed table with the validation rows';
COMMENT ON COLUMN cerebro.runs.model_table IS 'Table that gets the models';
COMMENT ON COLUMN cerebro.runs.configs IS 'Number of configs, less those that were deleted';
COMMENT ON COLUMN cerebro.runs.failed_configs IS 'Number of configs that failed while they trained';
COMMENT ON COLUMN cerebro.runs.epochs IS 'Number of epochs asked for';
COMMENT ON COLUMN cerebro.runs.segments IS 'Number of segments';
COMMENT ON COLUMN cerebro.runs.visits_done IS 'Visits that are committed';
COMMENT ON COLUMN cerebro.runs.visits_total IS 'Visits of the whole run as far as they are decided: epochs x segments for each config';
COMMENT ON COLUMN cerebro.runs.seed IS 'Seed that, with the rows and the number of segments, decides every bit of the result';
COMMENT ON COLUMN cerebro.runs.topology IS 'local (segment sessions), greenplum or citus (the same, on the segments or workers of a cluster) or inline (the caller''s session alone)';
COMMENT ON COLUMN cerebro.runs.started_at IS 'When the run began';
COMMENT ON COLUMN cerebro.runs.ended_at IS 'When the run ended; NULL while it is under way';
COMMENT ON COLUMN cerebro.runs.seconds IS 'How long the run took, or has taken so far';
COMMENT ON COLUMN cerebro.runs.detail IS 'Why the run failed or was interrupted, or by how much it exceeded its budget';
COMMENT ON COLUMN cerebro.runs.search IS 'Method that decides which configs train further: that of a search, or early_stopping; NULL if every config trains for all its epochs';
COMMENT ON COLUMN cerebro.runs.packed_version IS 'Version of the packed table that the run trains on: 1, and one more for each call of append_rows; NULL in runs of older releases';
COMMENT ON COLUMN cerebro.runs.groups IS 'In a run of groups, the number of groups, including those that are left out; cerebro.groups lists them';
COMMENT ON COLUMN cerebro.runs.folds IS 'In a cross-validated run, the number of folds';
