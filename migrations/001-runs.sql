-- The extension's own tables. Rows are only ever inserted, or deleted off the hot path: an update would
-- bloat here and would lock a whole table on Greenplum.

CREATE TABLE cerebro.settings (
    name text PRIMARY KEY CHECK (name IN (
        'backend', 'connection', 'idle_minutes', 'max_parameters', 'memory_mb', 'retention_days', 'retries',
        'segments', 'sessions', 'threads')),
    value text NOT NULL,
    CHECK (name IN ('backend', 'connection') OR value ~ '^[0-9]{1,9}$'),
    CHECK (name <> 'backend' OR value IN ('tensorflow', 'jax', 'torch'))
);
COMMENT ON TABLE cerebro.settings IS 'What an administrator has fixed for this database, one row each; only the owner of the extension may read or change it.';
COMMENT ON COLUMN cerebro.settings.name IS 'backend, connection, idle_minutes, max_parameters, memory_mb, retention_days, retries, segments, sessions or threads';
COMMENT ON COLUMN cerebro.settings.value IS 'The value as text; connection is a libpq connection string for segment sessions';

CREATE SEQUENCE cerebro._run_id_seq;

CREATE TABLE cerebro._run (
    run_id bigint PRIMARY KEY DEFAULT nextval('cerebro._run_id_seq'),
    owner regrole NOT NULL,
    kind text NOT NULL CHECK (kind IN ('many', 'single', 'evaluation')),
    source_table text NOT NULL,
    validation_table text,
    model_table text,
    epochs integer NOT NULL,
    metrics_frequency integer NOT NULL,
    segments integer NOT NULL,
    seed bigint NOT NULL,
    memory_mb integer NOT NULL,
    threads integer NOT NULL,
    use_gpus boolean NOT NULL,
    topology text NOT NULL,
    arch_table text NOT NULL,
    selection_table text,
    warm_start boolean NOT NULL,
    name text,
    description text,
    versions text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE cerebro._run IS 'One call that trains a set of configs on one packed table, as it was asked for.';

CREATE TABLE cerebro._run_event (
    run_id bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    event text NOT NULL CHECK (event IN ('running', 'finished', 'failed', 'interrupted')),
    detail text
);
CREATE INDEX ON cerebro._run_event (run_id);
COMMENT ON TABLE cerebro._run_event IS 'What became of a run, newest row last.';

CREATE TABLE cerebro._architecture (
    run_id bigint NOT NULL,
    model_id integer NOT NULL,
    model_arch text NOT NULL,
    parameters bigint NOT NULL,
    flops_per_row bigint NOT NULL,
    PRIMARY KEY (run_id, model_id)
);
COMMENT ON TABLE cerebro._architecture IS 'The architectures of a run as they were when it began.';

CREATE TABLE cerebro._weights (
    run_id bigint NOT NULL,
    model_id integer NOT NULL,
    mst_key integer NOT NULL,
    weights bytea NOT NULL,
    PRIMARY KEY (run_id, model_id, mst_key)
);
ALTER TABLE cerebro._weights ALTER COLUMN weights SET STORAGE EXTERNAL;
COMMENT ON TABLE cerebro._weights IS 'Weights to start from, for one config or (mst_key -1) for all configs of an architecture.';

CREATE TABLE cerebro._config (
    run_id bigint NOT NULL,
    mst_key integer NOT NULL,
    model_id integer NOT NULL,
    compile_params text NOT NULL,
    fit_params text NOT NULL,
    backend text NOT NULL,
    warm_run_id bigint,
    warm_step integer,
    epochs_before integer NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, mst_key)
);
COMMENT ON TABLE cerebro._config IS 'The configs of a run; warm_run_id and warm_step name the state that a warm start goes on from, epochs_before how many epochs it has behind it.';

CREATE TABLE cerebro._visit (
    run_id bigint NOT NULL,
    mst_key integer NOT NULL,
    step integer NOT NULL,
    epoch integer NOT NULL,
    segment integer NOT NULL,
    "rows" bigint NOT NULL,
    loss double precision,
    logs jsonb NOT NULL,
    state_bytes bigint NOT NULL,
    read_seconds double precision NOT NULL,
    train_seconds double precision NOT NULL,
    write_seconds double precision NOT NULL,
    pid integer NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at timestamptz NOT NULL,
    PRIMARY KEY (run_id, mst_key, step)
);
COMMENT ON TABLE cerebro._visit IS 'One row for each visit, committed together with the state it made.';

CREATE TABLE cerebro._state (
    run_id bigint NOT NULL,
    mst_key integer NOT NULL,
    step integer NOT NULL,
    part integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run_id, mst_key, step, part)
);
-- Weights do not compress, and an uncompressed field is read and written faster.
ALTER TABLE cerebro._state ALTER COLUMN data SET STORAGE EXTERNAL;
COMMENT ON TABLE cerebro._state IS 'Everything a config needs to go on after a step, in parts; never updated.';

CREATE TABLE cerebro._evaluation (
    run_id bigint NOT NULL,
    mst_key integer NOT NULL,
    epoch integer NOT NULL,
    dataset text NOT NULL CHECK (dataset IN ('training', 'validation')),
    segment integer NOT NULL,
    data bytea NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (run_id, mst_key, epoch, dataset, segment)
);
COMMENT ON TABLE cerebro._evaluation IS 'The metric variables of one config on one segment, before they are summed over the segments.';

CREATE TABLE cerebro._metric (
    run_id bigint NOT NULL,
    mst_key integer NOT NULL,
    epoch integer NOT NULL,
    dataset text NOT NULL,
    "position" integer NOT NULL,
    metric text NOT NULL,
    value double precision,
    higher_is_better boolean NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, mst_key, epoch, dataset, metric)
);
COMMENT ON TABLE cerebro._metric IS 'What a config reached on all segments together after an epoch.';

CREATE TABLE cerebro._failure (
    run_id bigint NOT NULL,
    mst_key integer NOT NULL,
    epoch integer NOT NULL,
    segment integer NOT NULL,
    reason text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, mst_key)
);
COMMENT ON TABLE cerebro._failure IS 'The configs that failed while they trained, with the reason.';

-- Nobody is granted these tables; the policies stand in case somebody is.
ALTER TABLE cerebro._run ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._run USING (pg_catalog.pg_has_role(owner, 'USAGE'));
DO $$
DECLARE
    child text;
BEGIN
    FOREACH child IN ARRAY ARRAY['_run_event', '_architecture', '_weights', '_config', '_visit', '_state', '_evaluation', '_metric', '_failure'] LOOP
        EXECUTE pg_catalog.format('ALTER TABLE cerebro.%I ENABLE ROW LEVEL SECURITY', child);
        EXECUTE pg_catalog.format(
            'CREATE POLICY owner ON cerebro.%I USING (EXISTS (SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) %I.run_id))',
            child, child);
    END LOOP;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro.settings', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._run', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._run_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._run_event', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._architecture', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._weights', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._config', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._visit', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._state', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._evaluation', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._metric', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._failure', '');
