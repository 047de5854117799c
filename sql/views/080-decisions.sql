CREATE OR REPLACE VIEW cerebro.decisions WITH (security_barrier) AS
SELECT
    d.run_id,
    d.number,
    d.mst_key,
    d.step / r.segments AS epoch,
    d.decision,
    d.epochs,
    d.reason,
    pg_catalog.pg_get_userbyid(d.role)::text AS decided_by,
    d.at,
    m.mst_key AS result_mst_key,
    m.step / r.segments AS result_epoch,
    m.value AS result
-- What is visible is decided in the scan that has the data: a leakproof condition of a user's may go below a join, and
-- EXPLAIN ANALYZE tells how many rows are found there.
FROM cerebro._decision AS d
JOIN cerebro._visible_run AS r USING (run_id)
LEFT JOIN cerebro._decision AS m
    ON m.run_id = d.run_id AND m.number = d.cause AND m.run_id = ANY (ARRAY(SELECT x.run_id FROM cerebro._visible_run AS x))
WHERE d.decision <> 'measured' AND d.run_id = ANY (ARRAY(SELECT x.run_id FROM cerebro._visible_run AS x));
COMMENT ON VIEW cerebro.decisions IS 'Decisions of search procedures, budgets and persons in your runs while they were under way.';
COMMENT ON COLUMN cerebro.decisions.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.decisions.number IS 'Order of the decisions within the run. Numbers are skipped where the procedure got a measurement';
COMMENT ON COLUMN cerebro.decisions.mst_key IS 'Config; NULL if the decision is about the whole run';
COMMENT ON COLUMN cerebro.decisions.epoch IS 'Whole epochs that the config has completed when the decision takes effect';
COMMENT ON COLUMN cerebro.decisions.decision IS 'start, clone, go_on, stop, resume, set_epochs, delete, pause, or refused (it could not be done any more)';
COMMENT ON COLUMN cerebro.decisions.epochs IS 'Number of epochs that the config is to train in all';
COMMENT ON COLUMN cerebro.decisions.reason IS 'Reason for the decision';
COMMENT ON COLUMN cerebro.decisions.decided_by IS 'Role that asked for it; NULL if the search procedure or a budget decided';
COMMENT ON COLUMN cerebro.decisions.at IS 'When the decision was stored; it takes effect after that';
COMMENT ON COLUMN cerebro.decisions.result_mst_key IS 'Config whose measurement led to the decision';
COMMENT ON COLUMN cerebro.decisions.result_epoch IS 'Epoch of that measurement';
COMMENT ON COLUMN cerebro.decisions.result IS 'Measured value, negated if higher is better';
