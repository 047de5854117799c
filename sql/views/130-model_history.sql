CREATE OR REPLACE VIEW cerebro.model_history WITH (security_barrier) AS
SELECT e.* FROM (
    SELECT x.name, x.at, x.event, x.alias, x.version, x.role, x.event_id
    FROM cerebro._usable_model AS m
    JOIN cerebro._model_event AS x ON x.name = m.name
    OFFSET 0
) AS e;
COMMENT ON VIEW cerebro.model_history IS 'What became of the registered models that you may use: versions that came and went, and where aliases pointed.';
COMMENT ON COLUMN cerebro.model_history.name IS 'Name of the model';
COMMENT ON COLUMN cerebro.model_history.at IS 'When it happened';
COMMENT ON COLUMN cerebro.model_history.event IS 'registered, set, rolled back, alias dropped or version dropped';
COMMENT ON COLUMN cerebro.model_history.alias IS 'Alias that was moved or dropped';
COMMENT ON COLUMN cerebro.model_history.version IS 'Version that came or went, or that the alias points at since';
COMMENT ON COLUMN cerebro.model_history.role IS 'Role that did it';
COMMENT ON COLUMN cerebro.model_history.event_id IS 'Number that orders the events';
