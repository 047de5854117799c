CREATE OR REPLACE VIEW cerebro.schedules WITH (security_barrier) AS
SELECT s.* FROM (
    SELECT x.name, x.alias, x.schedule, x.source, x.budget, x.promote, x.options, x.role, x.job_id, x.at
    FROM cerebro._usable_model AS m
    JOIN cerebro._schedule AS x ON x.name = m.name
    WHERE m.privilege <> 'predict'
    OFFSET 0
) AS s;
COMMENT ON VIEW cerebro.schedules IS 'When the registered models that you may read are trained again.';
COMMENT ON COLUMN cerebro.schedules.name IS 'Name of the model';
COMMENT ON COLUMN cerebro.schedules.alias IS 'Alias whose version gives the recipe, and which moves to a better one';
COMMENT ON COLUMN cerebro.schedules.schedule IS 'When, as cron has it: minute, hour, day of the month, month, day of the week';
COMMENT ON COLUMN cerebro.schedules.source IS 'Table or view with the rows; NULL means that of the recipe';
COMMENT ON COLUMN cerebro.schedules.budget IS 'How long the training may take; NULL means as the recipe says';
COMMENT ON COLUMN cerebro.schedules.promote IS 'When the alias moves: if_better, always or never';
COMMENT ON COLUMN cerebro.schedules.options IS 'Options of cerebro.train that differ from those of the recipe';
COMMENT ON COLUMN cerebro.schedules.role IS 'Role that made the schedule, with whose rights it runs';
COMMENT ON COLUMN cerebro.schedules.job_id IS 'Number of pg_cron''s job, cron.job';
COMMENT ON COLUMN cerebro.schedules.at IS 'When the schedule was made';
