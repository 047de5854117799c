CREATE OR REPLACE VIEW cerebro.leaderboard WITH (security_barrier) AS
WITH deciding AS (
    -- The first metric that is no loss, else the loss; on the validation rows where there are any.
    SELECT DISTINCT ON (m.run_id, m.mst_key)
        m.run_id,
        m.mst_key,
        m.dataset,
        m.metric
    FROM cerebro._metric AS m
    ORDER BY m.run_id, m.mst_key, (m.dataset = 'validation') DESC,
        (m.metric = 'loss' OR pg_catalog.right(m.metric, 5) = '_loss'), m."position"
),

history AS NOT MATERIALIZED ( -- a filter on one run must reach it
    SELECT
        d.run_id,
        d.mst_key,
        d.dataset,
        d.metric,
        m.epoch,
        m.value,
        l.value AS loss,
        m.higher_is_better,
        CASE
            WHEN m.value IN ('NaN', 'Infinity', '-Infinity') THEN NULL
            WHEN m.higher_is_better THEN -m.value
            ELSE m.value
        END AS badness
    FROM deciding AS d
    JOIN cerebro._metric AS m USING (run_id, mst_key, dataset, metric)
    LEFT JOIN cerebro._metric AS l
        ON l.run_id = d.run_id AND l.mst_key = d.mst_key AND l.dataset = d.dataset AND l.epoch = m.epoch
        AND l.metric = 'loss'
),

going AS (
    -- Configs that still train in a run that keeps them side by side: they are ranked at the last epoch that all
    -- of them have been measured at. The same is in planner/plan.py.
    SELECT
        c.run_id,
        c.mst_key,
        COALESCE(pg_catalog.max(m.epoch), 0) AS measured
    FROM cerebro._visible_run AS x
    JOIN cerebro._standing AS c USING (run_id)
    LEFT JOIN cerebro._failure AS f ON f.run_id = c.run_id AND f.mst_key = c.mst_key
    LEFT JOIN cerebro._metric AS m ON m.run_id = c.run_id AND m.mst_key = c.mst_key
    WHERE COALESCE((x.limits::json ->> 'even')::boolean, FALSE)
        AND f.mst_key IS NULL AND NOT c.stopped AND NOT c.deleted
    GROUP BY c.run_id, c.mst_key, c.epochs
    HAVING COALESCE(pg_catalog.max(m.epoch), 0) < c.epochs
),

reached AS (
    SELECT
        g.run_id,
        pg_catalog.min(g.measured) AS epoch
    FROM going AS g GROUP BY g.run_id
),

delivered AS (
    -- After the epoch whose state is the config's result: the last, or with restore_best the one that was best
    -- by what the run decides by. The same is in executor/report.py.
    SELECT DISTINCT ON (h.run_id, h.mst_key) h.*
    FROM history AS h
    JOIN cerebro._visible_run AS x USING (run_id)
    LEFT JOIN reached USING (run_id)
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN NOT COALESCE((x.limits::json ->> 'restore_best')::boolean, FALSE) THEN NULL
            WHEN NOT COALESCE((x.search::json ->> 'by_loss')::boolean, FALSE) THEN h.badness
            WHEN h.loss NOT IN ('NaN', 'Infinity', '-Infinity') THEN h.loss
        END AS kept_by
    ) AS k
    WHERE h.epoch <= COALESCE(reached.epoch, h.epoch)
    ORDER BY h.run_id, h.mst_key, k.kept_by, CASE WHEN k.kept_by IS NULL THEN -h.epoch ELSE h.epoch END
),

results AS (
    SELECT
        d.run_id,
        d.mst_key,
        d.dataset,
        d.metric,
        d.value,
        d.loss,
        d.badness,
        d.epoch,
        NULL::double precision AS deviation,
        NULL::text AS fold_values
    FROM delivered AS d
    JOIN cerebro._config AS c USING (run_id, mst_key)
    WHERE c.config_key IS NULL OR c.group_id IS NOT NULL
    UNION ALL
    -- A cross-validated config has a result when it has been measured on all its folds.
    SELECT
        c.run_id,
        c.config_key AS mst_key,
        pg_catalog.min(d.dataset) AS dataset,
        pg_catalog.min(d.metric) AS metric,
        pg_catalog.avg(d.value) AS value,
        pg_catalog.avg(d.loss) AS loss,
        pg_catalog.avg(d.badness) AS badness,
        pg_catalog.min(d.epoch) AS epoch,
        pg_catalog.stddev_samp(d.value) AS deviation,
        pg_catalog.string_agg(d.value::text, ', ' ORDER BY c.fold) AS fold_values
    FROM cerebro._config AS c
    LEFT JOIN delivered AS d USING (run_id, mst_key)
    WHERE c.fold IS NOT NULL
    GROUP BY c.run_id, c.config_key
    HAVING pg_catalog.count(*) = pg_catalog.count(d.mst_key)
),

candidates AS (
    SELECT
        c.run_id,
        c.mst_key,
        c.model_id,
        c.compile_params,
        c.fit_params,
        c.backend,
        f.reason,
        COALESCE(c.config_key, c.mst_key) AS shown_key,
        c.group_id
    FROM cerebro._config AS c
    LEFT JOIN cerebro._failure AS f USING (run_id, mst_key)
    WHERE c.config_key IS NULL OR c.group_id IS NOT NULL
    UNION ALL
    SELECT
        c.run_id,
        c.config_key AS mst_key,
        pg_catalog.min(c.model_id) AS model_id,
        pg_catalog.min(c.compile_params) AS compile_params,
        pg_catalog.min(c.fit_params) AS fit_params,
        pg_catalog.min(c.backend) AS backend,
        pg_catalog.min('without fold ' || c.fold || ': ' || f.reason) AS reason,
        c.config_key AS shown_key,
        NULL::integer AS group_id
    FROM cerebro._config AS c
    LEFT JOIN cerebro._failure AS f USING (run_id, mst_key)
    WHERE c.fold IS NOT NULL
    GROUP BY c.run_id, c.config_key
),

best AS (
    SELECT DISTINCT ON (h.run_id, h.mst_key)
        h.run_id,
        h.mst_key,
        h.epoch,
        h.value
    FROM history AS h ORDER BY h.run_id, h.mst_key, h.badness, h.epoch
),

newest AS (
    SELECT DISTINCT ON (h.run_id, h.mst_key)
        h.run_id,
        h.mst_key,
        h.epoch,
        h.value
    FROM history AS h ORDER BY h.run_id, h.mst_key, h.epoch DESC
)

SELECT
    r.run_id,
    CASE WHEN k.counts THEN pg_catalog.rank() OVER (
        PARTITION BY r.run_id, c.group_id ORDER BY k.counts DESC, delivered.badness, delivered.loss, c.shown_key
    ) END AS rank,
    c.shown_key AS mst_key,
    c.model_id,
    delivered.dataset,
    delivered.metric,
    delivered.value,
    delivered.loss,
    delivered.epoch,
    best.value AS best_value,
    best.epoch AS best_epoch,
    c.compile_params,
    c.fit_params,
    c.reason AS failure,
    c.backend,
    newest.value AS newest_value,
    newest.epoch AS newest_epoch,
    delivered.deviation,
    delivered.fold_values,
    g.key AS group_key
FROM cerebro._visible_run AS r
JOIN candidates AS c USING (run_id)
LEFT JOIN results AS delivered ON delivered.run_id = c.run_id AND delivered.mst_key = c.mst_key
LEFT JOIN cerebro._group AS g ON g.run_id = c.run_id AND g.group_id = c.group_id
LEFT JOIN best ON best.run_id = c.run_id AND best.mst_key = c.mst_key
LEFT JOIN newest ON newest.run_id = c.run_id AND newest.mst_key = c.mst_key
LEFT JOIN (
    SELECT DISTINCT
        x.run_id,
        x.mst_key
    FROM cerebro._decision AS x
    WHERE x.decision = 'delete' AND x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
) AS gone ON gone.run_id = c.run_id AND gone.mst_key = c.mst_key
CROSS JOIN LATERAL (
    SELECT c.reason IS NULL AND delivered.epoch IS NOT NULL AND gone.mst_key IS NULL AS counts
) AS k;
COMMENT ON VIEW cerebro.leaderboard IS 'The configs of your runs, best first within each run and group: by the first metric on the validation rows if there are any, else on the training rows.';
COMMENT ON COLUMN cerebro.leaderboard.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.leaderboard.rank IS 'Place within the run, and within the group where there are groups, from 1 for the best: by value, of equal ones by loss, then by mst_key; NULL for a config that failed, was deleted, or has not been measured';
COMMENT ON COLUMN cerebro.leaderboard.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.leaderboard.model_id IS 'Architecture';
COMMENT ON COLUMN cerebro.leaderboard.dataset IS 'Rows that decide: training or validation';
COMMENT ON COLUMN cerebro.leaderboard.metric IS 'Metric that decides: the first that is not a loss, else the loss';
COMMENT ON COLUMN cerebro.leaderboard.value IS 'Value of the metric for the state that is the config''s result: after the last epoch that was evaluated, with restore_best after the best one';
COMMENT ON COLUMN cerebro.leaderboard.loss IS 'The loss of the same state';
COMMENT ON COLUMN cerebro.leaderboard.epoch IS 'The epoch that left this state';
COMMENT ON COLUMN cerebro.leaderboard.newest_value IS 'The value after the last epoch that was evaluated';
COMMENT ON COLUMN cerebro.leaderboard.newest_epoch IS 'The epoch of the newest value; with the option order, "even", configs are ranked at an epoch that all of them have reached';
COMMENT ON COLUMN cerebro.leaderboard.deviation IS 'Of a cross-validated run, the standard deviation of the folds'' values, whose mean value is';
COMMENT ON COLUMN cerebro.leaderboard.fold_values IS 'Of a cross-validated run, the value on each fold''s rows of the model that was trained without them, as text; the first of fold 1';
COMMENT ON COLUMN cerebro.leaderboard.group_key IS 'Of a run of groups, as JSON, the values of the columns that make the group whose rows the config was trained on; configs are ranked within each group';
COMMENT ON COLUMN cerebro.leaderboard.best_value IS 'The best value after any epoch that was evaluated';
COMMENT ON COLUMN cerebro.leaderboard.best_epoch IS 'The epoch of the best value';
COMMENT ON COLUMN cerebro.leaderboard.compile_params IS 'Compile parameters of the config';
COMMENT ON COLUMN cerebro.leaderboard.fit_params IS 'Fit parameters of the config';
COMMENT ON COLUMN cerebro.leaderboard.failure IS 'Why the config failed; NULL if it did not';
COMMENT ON COLUMN cerebro.leaderboard.backend IS 'Engine that trains the config: tensorflow, jax or torch';
