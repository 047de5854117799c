CREATE OR REPLACE VIEW cerebro.progress WITH (security_barrier) AS
WITH now_running AS (
    -- A segment session names what it does in its application_name, which other sessions see at once.
    SELECT
        (m.words)[1] AS doing,
        (m.words)[2]::bigint AS run_id,
        (m.words)[3]::integer AS mst_key,
        (m.words)[4]::integer AS epoch,
        (m.words)[5]::integer AS segment
    FROM pg_catalog.pg_stat_activity AS a
    CROSS JOIN LATERAL pg_catalog.regexp_matches(
        a.application_name, '^cerebro (visit|evaluate|merge) run=(\d{1,18}) config=(\d{1,9}) epoch=(\d{1,9}) segment=(\d{1,9})$'
    ) AS m (words)
    WHERE a.datname = pg_catalog.current_database()
        -- On Greenplum it keeps the name of what it has done until it is given another.
        AND a.state IS DISTINCT FROM 'idle'
        -- Any role may call itself so; only a superuser's session can be one.
        AND a.usesysid IN (SELECT o.oid FROM pg_catalog.pg_roles AS o WHERE o.rolsuper)
),

going AS (
    -- Runs that a session stands behind; of those that crashed nothing is to be estimated, and they may be many.
    -- Whether one does is looked up as in the view of runs, which says more of it.
    SELECT r.run_id
    FROM cerebro._visible_run AS r
    JOIN cerebro._driver AS d USING (run_id)
    WHERE (SELECT e.event FROM cerebro._run_event AS e WHERE e.run_id = r.run_id ORDER BY e.at DESC LIMIT 1) = 'running'
        AND (
            ARRAY[(d.run_id & 2147483647) || ' ' || d.lock || ' ' || d.pid] && COALESCE(ARRAY(
                SELECT l.classid || ' ' || l.objid || ' ' || l.pid
                FROM pg_catalog.pg_locks AS l
                WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.objid::bigint >> 16 = 3300
                    AND l.database = (SELECT b.oid FROM pg_catalog.pg_database AS b WHERE b.datname = pg_catalog.current_database())
            ), '{}')
            OR pg_catalog.pg_is_in_recovery()
            OR NOT pg_catalog.txid_visible_in_snapshot(
                (SELECT n.last_value FROM cerebro._last_ending AS n), pg_catalog.txid_current_snapshot())
        )
),

measured AS (
    -- What visits of each kind of config take, and what it takes to measure one, beside what was estimated of visits:
    -- planner/estimating/costs.py has the same.
    SELECT
        w.*,
        w.in_order = pg_catalog.min(w.in_order) OVER (PARTITION BY w.run_id, w.evaluates, w.kind, w.segment) AS compiles
    FROM (
        SELECT
            x.run_id,
            FALSE AS evaluates,
            c.kind,
            x.segment,
            -- A bundle takes several groups through several epochs at once, and shares its seconds out.
            c.visit_seconds * CASE WHEN c.group_id IS NULL THEN 1
                ELSE x.step - COALESCE(pg_catalog.lag(x.step) OVER (PARTITION BY x.run_id, x.mst_key ORDER BY x.step), 0) END AS units,
            CASE WHEN c.group_id IS NULL THEN pg_catalog.date_part('epoch', x.ended_at - x.started_at)
                ELSE x.read_seconds + x.train_seconds + x.write_seconds END AS seconds,
            x.started_at,
            x.ended_at,
            -- All visits of a bundle begin at once.
            x.started_at AS in_order
        FROM cerebro._visible_visit AS x
        JOIN cerebro._config AS c USING (run_id, mst_key)
        WHERE x.segment >= 0 AND x.run_id = ANY (ARRAY(SELECT g.run_id FROM going AS g))
        UNION ALL
        SELECT
            e.run_id,
            TRUE AS evaluates,
            c.kind,
            e.segment,
            c.visit_seconds AS units,
            e.seconds,
            e.at - e.seconds * '1 second'::interval AS started_at,
            e.at AS ended_at,
            e.at AS in_order
        FROM (
            SELECT x.run_id, x.mst_key, x.epoch, x.segment, pg_catalog.sum(x.seconds) AS seconds, pg_catalog.min(m.at) AS at
            FROM cerebro._visible_evaluation AS x
            JOIN cerebro._metric AS m USING (run_id, mst_key, epoch)
            WHERE x.run_id = ANY (ARRAY(SELECT g.run_id FROM going AS g)) AND m.dataset = 'training' AND m."position" = 0
            GROUP BY x.run_id, x.mst_key, x.epoch, x.segment
        ) AS e
        JOIN cerebro._config AS c USING (run_id, mst_key)
    ) AS w
),

speeds AS (
    -- The newest counts half. Those that compile say nothing of those to come, and one alone says little.
    SELECT
        m.run_id,
        m.evaluates,
        m.kind,
        pg_catalog.sum(m.seconds * m.weight) AS seconds,
        pg_catalog.sum(m.units * m.weight) AS units
    FROM (
        SELECT
            n.*,
            pg_catalog.power(0.5::double precision, (n.age - 1)::double precision) AS weight
        FROM (
            SELECT
                o.*,
                pg_catalog.row_number() OVER (PARTITION BY o.run_id, o.evaluates, o.kind ORDER BY o.ended_at DESC, o.segment DESC) AS age,
                pg_catalog.count(*) OVER (PARTITION BY o.run_id, o.evaluates) AS known
            FROM measured AS o
            WHERE NOT o.compiles
        ) AS n
        WHERE n.age <= 40 AND n.known >= 4
    ) AS m
    GROUP BY m.run_id, m.evaluates, m.kind
),

pace AS (
    -- How long a run takes for each second of its visits and evaluations: it merges and waits as well. The newer half of
    -- its time says so, since what happens only once falls out of it: planner/estimating/costs.py has the same.
    SELECT
        m.run_id,
        pg_catalog.date_part('epoch', pg_catalog.max(m.ended_at) - pg_catalog.max(m.half))
        / NULLIF(pg_catalog.sum(LEAST(m.seconds, pg_catalog.date_part('epoch', m.ended_at - m.half))), 0) AS seconds
    FROM (
        SELECT
            n.run_id,
            n.seconds,
            n.ended_at,
            pg_catalog.min(n.started_at) OVER (PARTITION BY n.run_id)
            + (pg_catalog.max(n.ended_at) OVER (PARTITION BY n.run_id) - pg_catalog.min(n.started_at) OVER (PARTITION BY n.run_id)) / 2 AS half
        FROM measured AS n
    ) AS m
    WHERE m.ended_at > m.half
    GROUP BY m.run_id
)

SELECT
    r.run_id,
    c.mst_key,
    c.model_id,
    CASE
        WHEN f.mst_key IS NOT NULL THEN 'failed'
        WHEN c.deleted THEN 'deleted'
        WHEN n.doing = 'visit' AND NOT n.committed AND r.status IN ('running', 'paused') THEN 'training'
        WHEN n.doing <> 'visit' AND r.status IN ('running', 'paused') THEN 'evaluating'
        WHEN c.stopped THEN 'stopped'
        -- A search may give a config more epochs, but never more than the run has.
        WHEN v.step = c.epochs * r.segments AND (r.status = 'finished' OR y.search IS NULL OR c.epochs >= r.epochs)
            THEN 'finished'
        WHEN r.status <> 'running' THEN r.status
        ELSE 'waiting'
    END AS status,
    LEAST(v.step / r.segments + 1, c.epochs) AS epoch,
    c.epochs,
    v.step - c.first_step AS visits_done,
    c.epochs * r.segments - c.first_step AS visits_total,
    CASE WHEN n.doing <> 'visit' OR NOT n.committed THEN n.segment END AS segment,
    u.loss,
    CASE WHEN r.status = 'running' AND f.mst_key IS NULL AND NOT c.stopped AND NOT c.deleted
        THEN COALESCE(w.seconds * LEAST(r.segments, r.configs), 1) * (
            k.visit_seconds * (c.epochs * r.segments - v.step)
            -- Bundles measure in their visits. Until some were measured, it takes a third of a visit: the way forward.
            + CASE WHEN c.group_id IS NULL OR pg_catalog.cardinality(g.segments) > 1
                THEN r.segments * COALESCE(k.evaluation_seconds, k.visit_seconds / 3) * (
                    c.epochs / y.metrics_frequency - k.measured / y.metrics_frequency
                    + (c.epochs > k.measured AND c.epochs % y.metrics_frequency > 0)::integer
                ) ELSE 0 END
        ) END AS seconds_left,
    f.reason AS failure,
    c.compile_params,
    c.fit_params,
    c.source_key AS cloned_from,
    c.asked,
    a.model_arch::json #>> '{config,name}' AS net,
    c.config_key,
    c.fold,
    g.key AS group_key
FROM cerebro.runs AS r
JOIN cerebro._visible_run AS y USING (run_id)
JOIN cerebro._standing AS c USING (run_id)
LEFT JOIN cerebro._architecture AS a ON a.run_id = c.run_id AND a.model_id = c.model_id
LEFT JOIN cerebro._group AS g ON g.run_id = c.run_id AND g.group_id = c.group_id
LEFT JOIN cerebro._failure AS f ON f.run_id = c.run_id AND f.mst_key = c.mst_key
LEFT JOIN (
    SELECT DISTINCT ON (x.run_id, x.mst_key)
        x.run_id,
        x.mst_key,
        x.doing,
        x.segment,
        -- On Greenplum it is, a moment before the session on the coordinator hears of it.
        z.run_id IS NOT NULL AS committed
    FROM now_running AS x
    LEFT JOIN (
        SELECT w.run_id, w.mst_key, w.epoch, w.segment
        FROM cerebro._visible_visit AS w
        WHERE w.run_id = ANY (ARRAY(SELECT y.run_id FROM going AS y))
    ) AS z ON z.run_id = x.run_id AND z.mst_key = x.mst_key AND z.epoch = x.epoch AND z.segment = x.segment
    ORDER BY x.run_id, x.mst_key, x.doing DESC
) AS n ON n.run_id = c.run_id AND n.mst_key = c.mst_key
LEFT JOIN (
    -- For all configs at once, as in the view of runs.
    SELECT
        x.run_id,
        x.mst_key,
        -- Below zero are visits whose states are averaged; they count when that is done.
        pg_catalog.max(x.step) FILTER (WHERE x.step > 0)::bigint AS step,
        (pg_catalog.array_agg(x.loss ORDER BY x.epoch DESC, x.step DESC) FILTER (WHERE x.loss IS NOT NULL))[1] AS loss
    FROM cerebro._visible_visit AS x
    GROUP BY x.run_id, x.mst_key
) AS u ON u.run_id = c.run_id AND u.mst_key = c.mst_key
CROSS JOIN LATERAL (SELECT COALESCE(u.step, c.first_step::bigint) AS step) AS v
LEFT JOIN pace AS w ON w.run_id = c.run_id
LEFT JOIN cerebro._config AS o ON o.run_id = c.run_id AND o.mst_key = c.mst_key
LEFT JOIN (
    SELECT
        s.run_id,
        s.kind,
        pg_catalog.max(s.seconds / NULLIF(s.units, 0)) FILTER (WHERE NOT s.evaluates) AS visit,
        pg_catalog.max(s.seconds / NULLIF(s.units, 0)) FILTER (WHERE s.evaluates) AS evaluation
    FROM speeds AS s
    GROUP BY s.run_id, s.kind
) AS p ON p.run_id = o.run_id AND p.kind = o.kind
LEFT JOIN (
    SELECT
        s.run_id,
        pg_catalog.sum(s.seconds) FILTER (WHERE NOT s.evaluates)
        / NULLIF(pg_catalog.sum(s.units) FILTER (WHERE NOT s.evaluates), 0) AS visit,
        pg_catalog.sum(s.seconds) FILTER (WHERE s.evaluates)
        / NULLIF(pg_catalog.sum(s.units) FILTER (WHERE s.evaluates), 0) AS evaluation
    FROM speeds AS s
    GROUP BY s.run_id
) AS q ON q.run_id = c.run_id
LEFT JOIN (
    SELECT
        m.run_id,
        m.mst_key,
        pg_catalog.max(m.epoch) AS epoch
    FROM cerebro._metric AS m
    WHERE m.run_id = ANY (ARRAY(SELECT x.run_id FROM going AS x))
    GROUP BY m.run_id, m.mst_key
) AS h ON h.run_id = c.run_id AND h.mst_key = c.mst_key
CROSS JOIN LATERAL (
    SELECT
        -- A kind that was not visited yet takes the average of the others; before the first few, nobody knows.
        o.visit_seconds * COALESCE(p.visit, q.visit) AS visit_seconds,
        o.visit_seconds * COALESCE(p.evaluation, q.evaluation) AS evaluation_seconds,
        COALESCE(h.epoch, c.first_step / r.segments) AS measured
) AS k;
COMMENT ON VIEW cerebro.progress IS 'The progress of each config of your runs.';
COMMENT ON COLUMN cerebro.progress.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.progress.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.progress.model_id IS 'Architecture';
COMMENT ON COLUMN cerebro.progress.status IS 'waiting, training, evaluating, finished, stopped, deleted or failed; or the status of the run: paused, interrupted';
COMMENT ON COLUMN cerebro.progress.epoch IS 'Epoch that the config is in, counted from 1';
COMMENT ON COLUMN cerebro.progress.epochs IS 'Number of epochs that the config trains in all, as far as that is decided';
COMMENT ON COLUMN cerebro.progress.visits_done IS 'Visits that are committed';
COMMENT ON COLUMN cerebro.progress.visits_total IS 'Visits that the config makes in all: those of its epochs, less those that its source had made if it is a clone';
COMMENT ON COLUMN cerebro.progress.segment IS 'Segment that works on the config at this moment';
COMMENT ON COLUMN cerebro.progress.loss IS 'Loss over the config''s last visit';
COMMENT ON COLUMN cerebro.progress.seconds_left IS 'Estimated time of the remaining visits and evaluations and of the time between them: the estimate from before the run, corrected by its own visits; NULL until four visits have compiled nothing';
COMMENT ON COLUMN cerebro.progress.failure IS 'Why the config failed; NULL if it did not';
COMMENT ON COLUMN cerebro.progress.compile_params IS 'Compile parameters of the config';
COMMENT ON COLUMN cerebro.progress.fit_params IS 'Fit parameters of the config';
COMMENT ON COLUMN cerebro.progress.cloned_from IS 'Config that this one was cloned from; NULL if it is no clone';
COMMENT ON COLUMN cerebro.progress.asked IS 'Request of a person for this config that the run has not carried out yet';
COMMENT ON COLUMN cerebro.progress.config_key IS 'In a cross-validated run or a run of groups, the mst_key of the config in the model selection table; here mst_key numbers the config with its fold or group';
COMMENT ON COLUMN cerebro.progress.fold IS 'The fold that the config is measured on and not trained on; NULL if it is trained on all rows';
COMMENT ON COLUMN cerebro.progress.group_key IS 'In a run of groups, the group that the config is trained on: the values of its columns, as JSON';
COMMENT ON COLUMN cerebro.progress.net IS 'Name of the architecture in its JSON';
