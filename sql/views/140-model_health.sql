CREATE OR REPLACE VIEW cerebro.model_health WITH (security_barrier) AS
SELECT h.* FROM (
    SELECT x.name, x.version, x.at, x.verdict, x.source_table, x.rows, x.findings, x.role, x.check_id
    FROM cerebro._usable_model AS m
    JOIN cerebro._model_check AS x ON x.name = m.name
    WHERE m.privilege <> 'predict'
    OFFSET 0
) AS h;
COMMENT ON VIEW cerebro.model_health IS 'Checks of the registered models that you may read, a row for each check that a role has made who may manage the model.';
COMMENT ON COLUMN cerebro.model_health.name IS 'Name of the model';
COMMENT ON COLUMN cerebro.model_health.version IS 'Version that was checked';
COMMENT ON COLUMN cerebro.model_health.at IS 'When it was checked';
COMMENT ON COLUMN cerebro.model_health.verdict IS 'The worst of the findings: ok, warn or alarm';
COMMENT ON COLUMN cerebro.model_health.source_table IS 'Table or view whose rows it was checked with';
COMMENT ON COLUMN cerebro.model_health.rows IS 'How many rows these were';
COMMENT ON COLUMN cerebro.model_health.findings IS 'JSON array of all findings, as cerebro.check returned them';
COMMENT ON COLUMN cerebro.model_health.role IS 'Role that checked';
COMMENT ON COLUMN cerebro.model_health.check_id IS 'Number that orders the checks';
