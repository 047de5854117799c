CREATE OR REPLACE VIEW cerebro.groups WITH (security_barrier) AS
SELECT
    b.run_id,
    b.group_key,
    b."rows",
    b.segments,
    CASE
        WHEN b.configs = 0 AND l.unchanged THEN 'unchanged'
        WHEN b.configs = 0 THEN 'left out'
        WHEN b.rank IS NOT NULL THEN 'measured'
        WHEN b.failed_configs = b.configs THEN 'failed'
        ELSE 'waiting'
    END AS status,
    CASE
        WHEN b.configs > 0 THEN b.failure
        WHEN l.unchanged THEN NULL
        WHEN b."rows" < l.min_rows THEN b."rows" || CASE WHEN b."rows" = 1 THEN ' row' ELSE ' rows' END || ', fewer than min_rows ' || l.min_rows
        ELSE 'fewer classes than min_classes ' || l.min_classes
    END AS reason,
    b.configs,
    b.failed_configs,
    b.mst_key,
    b.unit_key,
    b.dataset,
    b.metric,
    b.value,
    b.loss,
    b.epoch,
    b.best_value,
    b.best_epoch,
    b.group_key IS NULL AS is_fallback
FROM (
    -- FULL, since the models of all rows are of no group, and groups that are left out have no models. DISTINCT is the
    -- outermost there: through it a filter on one run reaches both sides.
    SELECT DISTINCT ON (run_id, group_key)
        run_id,
        group_key,
        g."rows",
        pg_catalog.cardinality(g.segments) AS segments,
        g.classes,
        pg_catalog.count(y.mst_key) OVER (PARTITION BY run_id, group_key) AS configs,
        pg_catalog.count(y.failure) OVER (PARTITION BY run_id, group_key) AS failed_configs,
        y.rank,
        y.failure,
        y.mst_key,
        y.unit_key,
        y.dataset,
        y.metric,
        y.value,
        y.loss,
        y.epoch,
        y.best_value,
        y.best_epoch
    FROM (
        SELECT
            x.run_id,
            x.key AS group_key,
            x."rows",
            x.segments,
            x.classes
        FROM cerebro._group AS x
        -- What is visible is decided in the scan that has the data, as in the view of visits.
        WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    ) AS g
    FULL JOIN (
        SELECT z.* FROM cerebro.leaderboard AS z
        WHERE z.run_id = ANY (ARRAY(
            SELECT v.run_id FROM cerebro._visible_run AS v
            WHERE EXISTS (SELECT FROM cerebro._group AS q WHERE q.run_id = v.run_id)
        ))
    ) AS y USING (run_id, group_key)
    ORDER BY run_id, group_key, y.rank, y.mst_key
) AS b
JOIN cerebro._visible_run AS r USING (run_id)
CROSS JOIN LATERAL (
    SELECT
        (r.limits::json ->> 'min_rows')::bigint AS min_rows,
        (r.limits::json ->> 'min_classes')::integer AS min_classes,
        -- Of a run that trains what has changed, a group that no option leaves out.
        (r.limits::json ->> 'changed_groups')::boolean
        AND b."rows" >= COALESCE((r.limits::json ->> 'min_rows')::bigint, 1)
        AND COALESCE(b.classes >= (r.limits::json ->> 'min_classes')::integer, true) AS unchanged
) AS l;
COMMENT ON VIEW cerebro.groups IS 'The groups of your runs, each with its best config, and the models of all rows, if a run has a fallback.';
COMMENT ON COLUMN cerebro.groups.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.groups.group_key IS 'The group: the values of the columns that make it, as JSON; NULL for the models of all rows';
COMMENT ON COLUMN cerebro.groups."rows" IS 'Rows of the group when the run began';
COMMENT ON COLUMN cerebro.groups.segments IS 'Number of segments that have rows of the group';
COMMENT ON COLUMN cerebro.groups.status IS 'measured; waiting, if no config has been measured yet; failed, if all configs have; left out, if the options of the run say so; or unchanged, if the run trains only groups that have changed';
COMMENT ON COLUMN cerebro.groups.reason IS 'Why the group was left out, or why its best config failed; otherwise NULL';
COMMENT ON COLUMN cerebro.groups.configs IS 'Number of configs that are trained on the group';
COMMENT ON COLUMN cerebro.groups.failed_configs IS 'Number of these that failed';
COMMENT ON COLUMN cerebro.groups.mst_key IS 'The best config of the group';
COMMENT ON COLUMN cerebro.groups.unit_key IS 'The number of this config of this group in progress, visits and metrics';
COMMENT ON COLUMN cerebro.groups.dataset IS 'Rows that decide: training or validation';
COMMENT ON COLUMN cerebro.groups.metric IS 'Metric that decides: the first one that is not a loss, else the loss';
COMMENT ON COLUMN cerebro.groups.value IS 'Value of this metric for the best config';
COMMENT ON COLUMN cerebro.groups.loss IS 'The loss of the same state';
COMMENT ON COLUMN cerebro.groups.epoch IS 'The epoch that left this state';
COMMENT ON COLUMN cerebro.groups.best_value IS 'The best value of this config after any epoch that was evaluated';
COMMENT ON COLUMN cerebro.groups.best_epoch IS 'The epoch of the best value';
COMMENT ON COLUMN cerebro.groups.is_fallback IS 'Whether these are the models of all rows, which answer for groups without models of their own';
