CREATE OR REPLACE VIEW cerebro.leaderboard WITH (security_barrier) AS
WITH going AS (
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

visible AS (
    SELECT
        x.run_id,
        COALESCE((x.limits::json ->> 'restore_best')::boolean, FALSE) AS restores_best,
        COALESCE((x.limits::json ->> 'by_loss')::boolean OR (x.search::json ->> 'by_loss')::boolean, FALSE) AS by_loss,
        e.epoch AS reached
    FROM cerebro._visible_run AS x
    LEFT JOIN (
        SELECT
            g.run_id,
            pg_catalog.min(g.measured) AS epoch
        FROM going AS g GROUP BY g.run_id
    ) AS e USING (run_id)
),

history AS (
    -- A filter on one run reaches it: each of these is named once.
    -- After each epoch the metric that decides: the first that is no loss, else the loss. Grouped as the table's key is.
    SELECT
        m.run_id,
        m.mst_key,
        m.epoch,
        m.dataset,
        (pg_catalog.array_agg(m.metric ORDER BY m.metric = 'loss' OR pg_catalog.right(m.metric, 5) = '_loss', m."position"))[1] AS metric,
        (pg_catalog.array_agg(m.value ORDER BY m.metric = 'loss' OR pg_catalog.right(m.metric, 5) = '_loss', m."position"))[1] AS value,
        (pg_catalog.array_agg(m.higher_is_better ORDER BY m.metric = 'loss' OR pg_catalog.right(m.metric, 5) = '_loss', m."position"))[1] AS higher_is_better,
        pg_catalog.max(m.value) FILTER (WHERE m.metric = 'loss') AS loss
    FROM cerebro._metric AS m
    GROUP BY m.run_id, m.mst_key, m.epoch, m.dataset
),

deciding AS (
    SELECT
        h.*,
        CASE
            -- A config whose loss is no number has learned nothing, whatever its metric says.
            WHEN h.value IN ('NaN', 'Infinity', '-Infinity') OR h.loss IN ('NaN', 'Infinity', '-Infinity') THEN NULL
            WHEN h.higher_is_better THEN -h.value
            ELSE h.value
        END AS badness,
        -- The validation rows decide where there are any.
        pg_catalog.bool_or(h.dataset = 'validation') OVER (PARTITION BY h.run_id, h.mst_key) AS validated
    FROM history AS h
),

measured AS (
    -- As epoch, value, loss and badness, the first of each counts.
    -- Delivered is the epoch whose state is the config's result: the last, or with restore_best the one that was best
    -- by what the run decides by. The same is in executor/running/report.py.
    SELECT
        h.run_id,
        h.mst_key,
        pg_catalog.min(h.dataset) AS dataset,
        pg_catalog.min(h.metric) AS metric,
        pg_catalog.array_agg(
            ARRAY[h.epoch, h.value, h.loss, h.badness]
            ORDER BY k.kept_by, CASE WHEN k.kept_by IS NULL THEN -h.epoch ELSE h.epoch END
        ) FILTER (WHERE h.epoch <= COALESCE(x.reached, h.epoch)) AS delivered,
        pg_catalog.array_agg(ARRAY[h.epoch, h.value] ORDER BY h.badness, h.epoch) AS best,
        pg_catalog.array_agg(ARRAY[h.epoch, h.value] ORDER BY h.epoch DESC) AS newest
    FROM deciding AS h
    JOIN visible AS x USING (run_id)
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN NOT x.restores_best THEN NULL
            WHEN NOT x.by_loss THEN h.badness
            WHEN h.loss NOT IN ('NaN', 'Infinity', '-Infinity') THEN h.loss
        END AS kept_by
    ) AS k
    WHERE h.dataset = CASE WHEN h.validated THEN 'validation' ELSE 'training' END
    GROUP BY h.run_id, h.mst_key
),

configs AS (
    -- FULL, though each that was measured is there: such a join is never made by going over all of the one side for each
    -- row of the other, which takes long where the server expects few rows and a run has ten thousand groups.
    SELECT
        run_id,
        mst_key,
        c.model_id,
        c.compile_params,
        c.fit_params,
        c.backend,
        c.config_key,
        c.fold,
        c.group_id,
        m.dataset,
        m.metric,
        m.delivered[1][1]::integer AS epoch,
        m.delivered[1][2] AS value,
        m.delivered[1][3] AS loss,
        m.delivered[1][4] AS badness,
        m.best[1][1]::integer AS best_epoch,
        m.best[1][2] AS best_value,
        m.newest[1][1]::integer AS newest_epoch,
        m.newest[1][2] AS newest_value
    FROM cerebro._config AS c
    FULL JOIN measured AS m USING (run_id, mst_key)
),

candidates AS (
    -- One for all folds of a config, which has a result when it has been measured on all of them.
    SELECT
        c.run_id,
        CASE WHEN c.fold IS NULL THEN c.mst_key ELSE c.config_key END AS mst_key,
        pg_catalog.min(COALESCE(c.config_key, c.mst_key)) AS shown_key,
        pg_catalog.min(c.group_id) AS group_id,
        pg_catalog.count(c.fold) AS folds,
        pg_catalog.min(c.model_id) AS model_id,
        pg_catalog.min(c.compile_params) AS compile_params,
        pg_catalog.min(c.fit_params) AS fit_params,
        pg_catalog.min(c.backend) AS backend,
        pg_catalog.min(COALESCE('without fold ' || c.fold || ': ', '') || f.reason) AS reason,
        pg_catalog.bool_and(c.epoch IS NOT NULL) AS is_measured,
        pg_catalog.min(c.dataset) AS dataset,
        pg_catalog.min(c.metric) AS metric,
        pg_catalog.avg(c.value) AS value,
        pg_catalog.avg(c.loss) AS loss,
        CASE WHEN pg_catalog.count(c.badness) = pg_catalog.count(*) THEN pg_catalog.avg(c.badness) END AS badness,
        pg_catalog.min(c.epoch) AS epoch,
        pg_catalog.stddev_samp(c.value) AS deviation,
        pg_catalog.string_agg(c.value::text, ', ' ORDER BY c.fold) FILTER (WHERE c.fold IS NOT NULL) AS fold_values,
        pg_catalog.min(c.best_epoch) FILTER (WHERE c.fold IS NULL) AS best_epoch,
        pg_catalog.min(c.best_value) FILTER (WHERE c.fold IS NULL) AS best_value,
        pg_catalog.min(c.newest_epoch) FILTER (WHERE c.fold IS NULL) AS newest_epoch,
        pg_catalog.min(c.newest_value) FILTER (WHERE c.fold IS NULL) AS newest_value
    FROM configs AS c
    LEFT JOIN cerebro._failure AS f ON f.run_id = c.run_id AND f.mst_key = c.mst_key
    -- The final model of a cross-validated config is not ranked.
    WHERE c.config_key IS NULL OR c.group_id IS NOT NULL OR c.fold IS NOT NULL
    GROUP BY c.run_id, CASE WHEN c.fold IS NULL THEN c.mst_key ELSE c.config_key END
)

SELECT
    r.run_id,
    CASE WHEN k.counts THEN pg_catalog.rank() OVER (
        PARTITION BY r.run_id, c.group_id ORDER BY k.counts DESC, c.badness, c.loss, c.shown_key
    ) END AS rank,
    c.shown_key AS mst_key,
    c.model_id,
    CASE WHEN c.is_measured THEN c.dataset END AS dataset,
    CASE WHEN c.is_measured THEN c.metric END AS metric,
    CASE WHEN c.is_measured THEN c.value END AS value,
    CASE WHEN c.is_measured THEN c.loss END AS loss,
    CASE WHEN c.is_measured THEN c.epoch END AS epoch,
    c.best_value,
    c.best_epoch,
    c.compile_params,
    c.fit_params,
    c.reason AS failure,
    c.backend,
    c.newest_value,
    c.newest_epoch,
    CASE WHEN c.is_measured THEN c.deviation END AS deviation,
    CASE WHEN c.is_measured THEN c.fold_values END AS fold_values,
    g.key AS group_key,
    CASE WHEN c.folds = 0 THEN c.mst_key END AS unit_key
FROM cerebro._visible_run AS r
JOIN candidates AS c USING (run_id)
LEFT JOIN cerebro._group AS g ON g.run_id = c.run_id AND g.group_id = c.group_id
LEFT JOIN (
    SELECT DISTINCT
        x.run_id,
        x.mst_key
    FROM cerebro._decision AS x
    WHERE x.decision = 'delete' AND x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
) AS gone ON gone.run_id = c.run_id AND gone.mst_key = c.mst_key
CROSS JOIN LATERAL (
    SELECT c.reason IS NULL AND c.is_measured AND gone.mst_key IS NULL AS counts
) AS k;
COMMENT ON VIEW cerebro.leaderboard IS 'The configs of your runs, best first within each run and group: by the first metric on the validation rows if there are any, else on the training rows.';
COMMENT ON COLUMN cerebro.leaderboard.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.leaderboard.rank IS 'Place within the run, in a run of groups within the group, from 1 for the best: by value, then by loss, then by mst_key; NULL for a config that failed, was deleted, or has not been measured';
COMMENT ON COLUMN cerebro.leaderboard.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.leaderboard.model_id IS 'Architecture';
COMMENT ON COLUMN cerebro.leaderboard.dataset IS 'Rows that decide: training or validation';
COMMENT ON COLUMN cerebro.leaderboard.metric IS 'Metric that decides: the first one that is not a loss, else the loss';
COMMENT ON COLUMN cerebro.leaderboard.value IS 'Value of the metric for the state that is the config''s result: the state after the last epoch that was evaluated, or with restore_best after the best one';
COMMENT ON COLUMN cerebro.leaderboard.loss IS 'The loss of the same state';
COMMENT ON COLUMN cerebro.leaderboard.epoch IS 'The epoch that left this state';
COMMENT ON COLUMN cerebro.leaderboard.newest_value IS 'The value after the last epoch that was evaluated';
COMMENT ON COLUMN cerebro.leaderboard.newest_epoch IS 'The epoch of the newest value; with the option order, "even", configs are ranked at an epoch that all of them have reached';
COMMENT ON COLUMN cerebro.leaderboard.deviation IS 'In a cross-validated run, the standard deviation of the folds'' values; value is their mean';
COMMENT ON COLUMN cerebro.leaderboard.fold_values IS 'In a cross-validated run, as text, the value on the rows of each fold, in their order, of the model that was trained without them';
COMMENT ON COLUMN cerebro.leaderboard.group_key IS 'In a run of groups, the group that the config was trained on: the values of its columns, as JSON; configs are ranked within each group';
COMMENT ON COLUMN cerebro.leaderboard.unit_key IS 'Number of the config in progress, visits and metrics: in a run of groups it is another one for each group; NULL in a cross-validated run, where a config has a number for each fold';
COMMENT ON COLUMN cerebro.leaderboard.best_value IS 'The best value after any epoch that was evaluated';
COMMENT ON COLUMN cerebro.leaderboard.best_epoch IS 'The epoch of the best value';
COMMENT ON COLUMN cerebro.leaderboard.compile_params IS 'Compile parameters of the config';
COMMENT ON COLUMN cerebro.leaderboard.fit_params IS 'Fit parameters of the config';
COMMENT ON COLUMN cerebro.leaderboard.failure IS 'Why the config failed; NULL if it did not';
COMMENT ON COLUMN cerebro.leaderboard.backend IS 'Engine that trains the config: tensorflow, jax or torch';
