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
FROM cerebro._decision AS d
JOIN cerebro._visible_run AS r USING (run_id)
LEFT JOIN cerebro._decision AS m ON m.run_id = d.run_id AND m.number = d.cause
WHERE d.decision <> 'measured';
COMMENT ON VIEW cerebro.decisions IS 'What was decided in your runs while they went on: by a search procedure, by a budget, by a person.';
COMMENT ON COLUMN cerebro.decisions.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.decisions.number IS 'Their order within the run; between them stand the measurements that the procedure was told';
COMMENT ON COLUMN cerebro.decisions.mst_key IS 'Config; NULL where it is about the whole run';
COMMENT ON COLUMN cerebro.decisions.epoch IS 'Whole epochs that the config has behind it when it takes effect';
COMMENT ON COLUMN cerebro.decisions.decision IS 'start, clone, go_on, stop, resume, set_epochs, delete, pause, or refused (it could not be done any more)';
COMMENT ON COLUMN cerebro.decisions.epochs IS 'Until how many epochs the config is to train';
COMMENT ON COLUMN cerebro.decisions.reason IS 'Why';
COMMENT ON COLUMN cerebro.decisions.decided_by IS 'Role that asked for it; NULL where the search procedure or a budget decided';
COMMENT ON COLUMN cerebro.decisions.at IS 'When it was written down; it takes effect after that';
COMMENT ON COLUMN cerebro.decisions.result_mst_key IS 'Config whose measurement led to it';
COMMENT ON COLUMN cerebro.decisions.result_epoch IS 'Epoch of that measurement';
COMMENT ON COLUMN cerebro.decisions.result IS 'What was measured, turned so that lower is better';
