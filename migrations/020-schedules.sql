-- Models that are trained again by a schedule, and what each run of it did.
CREATE SEQUENCE cerebro._schedule_run_id_seq CACHE 1;

CREATE TABLE cerebro._schedule (
    name text NOT NULL,
    alias text NOT NULL,
    schedule text NOT NULL,
    job_id bigint NOT NULL,
    role text NOT NULL,
    source text,
    budget interval,
    promote text NOT NULL,
    options jsonb,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, alias)
);
COMMENT ON TABLE cerebro._schedule IS 'When registered models are trained again, with the arguments of cerebro.retrain; job_id is that of pg_cron''s job.';

CREATE TABLE cerebro._schedule_run (
    name text NOT NULL,
    schedule_run_id bigint NOT NULL DEFAULT nextval('cerebro._schedule_run_id_seq'),
    alias text NOT NULL,
    role text NOT NULL,
    pid integer NOT NULL,
    outcome text CHECK (outcome IN ('done', 'failed', 'skipped')),
    version integer,
    promoted boolean,
    reason text,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    PRIMARY KEY (name, schedule_run_id)
);
COMMENT ON TABLE cerebro._schedule_run IS 'What the runs of schedules did; one without an outcome goes on, or was interrupted if its session is gone.';

-- Nobody is granted these tables; with no policy, whoever should be reads nothing.
ALTER TABLE cerebro._schedule ENABLE ROW LEVEL SECURITY;
ALTER TABLE cerebro._schedule_run ENABLE ROW LEVEL SECURITY;

DO $$
BEGIN
    IF current_setting('gp_role', true) IS NOT NULL THEN
        EXECUTE 'ALTER TABLE cerebro._schedule SET DISTRIBUTED BY (name)';
        EXECUTE 'ALTER TABLE cerebro._schedule_run SET DISTRIBUTED BY (name)';
    END IF;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro._schedule_run_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._schedule', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._schedule_run', '');
