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
FROM cerebro._metric AS m
JOIN cerebro._visible_run AS r USING (run_id);
COMMENT ON VIEW cerebro.metrics IS 'What the configs of your runs reached after the epochs that were evaluated.';
COMMENT ON COLUMN cerebro.metrics.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.metrics.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.metrics.epoch IS 'Epoch after which it was measured';
COMMENT ON COLUMN cerebro.metrics.dataset IS 'training or validation';
COMMENT ON COLUMN cerebro.metrics.metric IS 'Name of the metric as Keras gives it; loss is always there';
COMMENT ON COLUMN cerebro.metrics.value IS 'Value over all rows of all segments';
COMMENT ON COLUMN cerebro.metrics.higher_is_better IS 'Direction of the metric';
COMMENT ON COLUMN cerebro.metrics.at IS 'When it was measured';
