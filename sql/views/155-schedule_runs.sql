CREATE OR REPLACE VIEW cerebro.schedule_runs WITH (security_barrier) AS
SELECT r.* FROM (
    SELECT
        x.name,
        x.alias,
        x.started_at,
        x.ended_at,
        -- The session behind a run holds an advisory lock with its number: store/models/schedules.py.
        CASE
            WHEN x.outcome IS NOT NULL THEN x.outcome
            WHEN EXISTS (
                SELECT FROM pg_catalog.pg_locks AS l
                WHERE l.locktype = 'advisory' AND l.granted AND l.pid = x.pid AND l.objsubid = 2
                    AND l.classid = 1667592805 AND l.objid = (x.schedule_run_id & 2147483647)::oid
            ) THEN 'running'
            ELSE 'interrupted'
        END AS outcome,
        x.version,
        x.promoted,
        x.reason,
        x.role,
        x.schedule_run_id
    FROM cerebro._usable_model AS m
    JOIN cerebro._schedule_run AS x ON x.name = m.name
    WHERE m.privilege <> 'predict'
    OFFSET 0
) AS r;
COMMENT ON VIEW cerebro.schedule_runs IS 'What the schedules of the registered models that you may read have done.';
COMMENT ON COLUMN cerebro.schedule_runs.name IS 'Name of the model';
COMMENT ON COLUMN cerebro.schedule_runs.alias IS 'Alias of the schedule';
COMMENT ON COLUMN cerebro.schedule_runs.started_at IS 'When the run began';
COMMENT ON COLUMN cerebro.schedule_runs.ended_at IS 'When it ended';
COMMENT ON COLUMN cerebro.schedule_runs.outcome IS 'running, done, failed, skipped since the run before it still went on, or interrupted: its session ended before it did';
COMMENT ON COLUMN cerebro.schedule_runs.version IS 'Version that came of it';
COMMENT ON COLUMN cerebro.schedule_runs.promoted IS 'Whether the alias points at that version since';
COMMENT ON COLUMN cerebro.schedule_runs.reason IS 'Why it was promoted or not, or what went wrong';
COMMENT ON COLUMN cerebro.schedule_runs.role IS 'Role with whose rights it ran';
COMMENT ON COLUMN cerebro.schedule_runs.schedule_run_id IS 'Number that orders the runs';
