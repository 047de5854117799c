CREATE OR REPLACE VIEW cerebro._visible_evaluation WITH (security_barrier) AS
SELECT e.run_id, e.mst_key, e.epoch, e.segment, e.seconds
FROM cerebro._evaluation AS e
WHERE e.run_id = ANY (ARRAY(SELECT r.run_id FROM cerebro._visible_run AS r));
COMMENT ON VIEW cerebro._visible_evaluation IS 'Internal: how long evaluations took, in the runs that the current role may know of.';
