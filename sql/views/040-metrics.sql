CREATE OR REPLACE VIEW cerebro.metrics WITH (security_barrier) AS
SELECT
    m.run_id,
    m.mst_key,
    m.epoch,
    m.dataset,
    m.metric,
    m.value,
    m.higher_is_better,
    m.at
-- What is visible is decided in the scan that has the data: a leakproof condition of a user's may go below a join, and
-- EXPLAIN ANALYZE tells how many rows are found there.
FROM cerebro._metric AS m
WHERE m.run_id = ANY (ARRAY(SELECT r.run_id FROM cerebro._visible_run AS r));
COMMENT ON VIEW cerebro.metrics IS 'The metrics of the configs of your runs after each epoch that was evaluated.';
COMMENT ON COLUMN cerebro.metrics.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.metrics.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.metrics.epoch IS 'Epoch after which it was measured';
COMMENT ON COLUMN cerebro.metrics.dataset IS 'training or validation';
COMMENT ON COLUMN cerebro.metrics.metric IS 'Name of the metric as Keras gives it; loss is always there';
COMMENT ON COLUMN cerebro.metrics.value IS 'Value over all rows of all segments';
COMMENT ON COLUMN cerebro.metrics.higher_is_better IS 'Direction of the metric';
COMMENT ON COLUMN cerebro.metrics.at IS 'When it was measured';
