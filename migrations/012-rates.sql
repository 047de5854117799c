-- What runs have measured, for the estimates of later ones.
ALTER TABLE cerebro._architecture ADD COLUMN work text;
COMMENT ON COLUMN cerebro._architecture.work IS 'What one row costs, by family of layers; NULL in runs of older versions';

ALTER TABLE cerebro._config ADD COLUMN kind text, ADD COLUMN visit_seconds double precision;
COMMENT ON COLUMN cerebro._config.kind IS 'Configs of a kind take as long; NULL in runs of older versions';
COMMENT ON COLUMN cerebro._config.visit_seconds IS 'How long a visit should take, as was estimated before the config began; NULL in runs of older versions';

CREATE TABLE cerebro._rate (
    run_id bigint NOT NULL,
    host text NOT NULL,
    backend text NOT NULL,
    threads integer NOT NULL,
    versions text NOT NULL,
    kind text NOT NULL,
    architecture text NOT NULL,
    compiled text NOT NULL,
    batch_size integer NOT NULL,
    work text NOT NULL,
    parameters bigint NOT NULL,
    state_bytes bigint NOT NULL,
    visits integer NOT NULL,
    batch_seconds double precision NOT NULL,
    compile_seconds double precision,
    write_seconds double precision NOT NULL,
    rest_seconds double precision NOT NULL,
    evaluation_seconds double precision,
    read_seconds double precision,
    PRIMARY KEY (run_id, host, kind)
);
COMMENT ON TABLE cerebro._rate IS 'What runs have measured of each kind of config: seconds of a mini-batch, of compiling, of writing a state, between visits, and of measuring. No row names a table, a role or a value. Estimates are made of it.';

-- Nobody is granted this table; with no policy, whoever should be reads nothing.
ALTER TABLE cerebro._rate ENABLE ROW LEVEL SECURITY;

DO $$
BEGIN
    IF version() LIKE '%Greenplum%' THEN
        EXECUTE 'ALTER TABLE cerebro._rate SET DISTRIBUTED BY (run_id)';
    END IF;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro._rate', '');

ALTER TABLE cerebro._visit ADD COLUMN cpu_seconds double precision, ADD COLUMN memory_bytes bigint;
COMMENT ON COLUMN cerebro._visit.cpu_seconds IS 'Processor time of the session during the visit; NULL in runs of older versions';
COMMENT ON COLUMN cerebro._visit.memory_bytes IS 'Memory of the session at the end of the visit; NULL in runs of older versions';

-- Whether the planner may choose what a call leaves to it.
ALTER TABLE cerebro.settings DROP CONSTRAINT settings_name_check, DROP CONSTRAINT settings_check;
ALTER TABLE cerebro.settings
    ADD CONSTRAINT settings_name_check CHECK (name IN (
        'backend', 'choosing', 'connection', 'idle_minutes', 'look_seconds', 'max_parameters', 'memory_mb',
        'retention_days', 'retries', 'retry_seconds', 'segments', 'sessions', 'threads')),
    ADD CONSTRAINT settings_check
        CHECK (name IN ('backend', 'choosing', 'connection') OR value ~ '^[0-9]{1,9}$'),
    ADD CHECK (name <> 'choosing' OR value IN ('on', 'off'));
COMMENT ON COLUMN cerebro.settings.name IS 'backend, choosing, connection, idle_minutes, look_seconds, max_parameters, memory_mb, retention_days, retries, retry_seconds, segments, sessions or threads';
