\echo Use "CREATE EXTENSION cerebro" to load this file. \quit

SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL default_table_access_method = heap;

-- Made here and not by the control file: the schema is then a member of the extension, goes with it, and
-- nobody can have made it beforehand to keep its ownership.
CREATE SCHEMA cerebro;
COMMENT ON SCHEMA cerebro IS 'Trains many deep nets at once, beside the rows.';
-- For privileges.sql, which runs at updates too; gone at the end of the script.
SET LOCAL cerebro.installing = on;

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

-- How long a run that goes on waits for a server that refuses a new session.

ALTER TABLE cerebro.settings DROP CONSTRAINT settings_name_check;
ALTER TABLE cerebro.settings ADD CONSTRAINT settings_name_check CHECK (name IN (
    'backend', 'connection', 'idle_minutes', 'max_parameters', 'memory_mb', 'retention_days', 'retries',
    'retry_seconds', 'segments', 'sessions', 'threads'));
COMMENT ON COLUMN cerebro.settings.name IS 'backend, connection, idle_minutes, max_parameters, memory_mb, retention_days, retries, retry_seconds, segments, sessions or threads';

-- What is decided while a run goes on: by a search procedure, by a budget, by a person in another session.

ALTER TABLE cerebro._run DROP CONSTRAINT _run_kind_check;
ALTER TABLE cerebro._run ADD CONSTRAINT _run_kind_check
    CHECK (kind IN ('many', 'single', 'automl', 'evaluation'));
ALTER TABLE cerebro._run ADD COLUMN search text;
ALTER TABLE cerebro._run ADD COLUMN limits text NOT NULL DEFAULT '{}';

ALTER TABLE cerebro._config ADD COLUMN source_key integer;
ALTER TABLE cerebro._config ADD COLUMN source_step integer;
COMMENT ON TABLE cerebro._config IS 'The configs of a run; warm_run_id and warm_step name the state that a warm start goes on from, epochs_before how many epochs it has behind it; source_key and source_step the config, and if its state was taken the step, that a clone was made from.';

CREATE SEQUENCE cerebro._request_id_seq;

CREATE TABLE cerebro._request (
    request_id bigint PRIMARY KEY DEFAULT nextval('cerebro._request_id_seq'),
    run_id bigint NOT NULL,
    role regrole NOT NULL,
    decision text NOT NULL CHECK (decision IN (
        'start', 'clone', 'stop', 'resume', 'delete', 'set_epochs', 'pause')),
    mst_key integer,
    epochs integer,
    source_key integer,
    with_state boolean,
    model_id integer,
    compile_params text,
    fit_params text,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ON cerebro._request (run_id);
COMMENT ON TABLE cerebro._request IS 'What a person has asked of a run that goes on; the session behind the run answers each with one row of _decision.';

CREATE TABLE cerebro._decision (
    run_id bigint NOT NULL,
    number integer NOT NULL,
    decision text NOT NULL CHECK (decision IN (
        'measured', 'start', 'clone', 'go_on', 'stop', 'resume', 'delete', 'set_epochs', 'pause', 'refused')),
    mst_key integer,
    step integer,
    epochs integer,
    value double precision,
    reason text,
    role regrole,
    request_id bigint,
    cause integer,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, number)
);
CREATE INDEX ON cerebro._decision (request_id);
COMMENT ON TABLE cerebro._decision IS 'Everything that was decided in a run, and each measurement that its search procedure was told, in this order.';

ALTER TABLE cerebro._request ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._request USING (EXISTS (
    SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) _request.run_id));
ALTER TABLE cerebro._decision ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._decision USING (EXISTS (
    SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) _decision.run_id));

SELECT pg_catalog.pg_extension_config_dump('cerebro._request', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._request_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._decision', '');

-- Greenplum: where the rows of each table lie. Elsewhere `place` is all that there is to say, and always 0.

ALTER TABLE cerebro._state ADD COLUMN place integer NOT NULL DEFAULT 0;
ALTER TABLE cerebro._visit ADD COLUMN place integer NOT NULL DEFAULT 0;
ALTER TABLE cerebro._evaluation ADD COLUMN place integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN cerebro._state.place IS 'Greenplum: the distribution key of the rows beside which it was made';
COMMENT ON COLUMN cerebro._visit.place IS 'Greenplum: the distribution key of the rows beside which it was made';
COMMENT ON COLUMN cerebro._evaluation.place IS 'Greenplum: the distribution key of the rows beside which it was made';

DO $$
DECLARE
    name text;
BEGIN
    IF version() NOT LIKE '%Greenplum%' THEN
        RETURN;
    END IF;
    -- Few rows, read together with all others: whole on every segment. Code of a user's that a segment runs may read
    -- them, since Greenplum asks for the rights to a table on the coordinator alone; it may read no distributed one, as
    -- `settings` is already by its key.
    FOREACH name IN ARRAY ARRAY['_run', '_run_event', '_config', '_request', '_decision'] LOOP
        EXECUTE format('ALTER TABLE cerebro.%I SET DISTRIBUTED REPLICATED', name);
    END LOOP;
    EXECUTE 'ALTER TABLE cerebro._architecture SET DISTRIBUTED BY (run_id)';
    -- What a visit leaves stands where it was made: it need not move, and is committed in one phase.
    FOREACH name IN ARRAY ARRAY['_state', '_visit', '_evaluation'] LOOP
        EXECUTE format('ALTER TABLE cerebro.%I DROP CONSTRAINT %I', name, name || '_pkey');
        EXECUTE format('ALTER TABLE cerebro.%I SET DISTRIBUTED BY (place)', name);
    END LOOP;
    EXECUTE 'ALTER TABLE cerebro._state ADD PRIMARY KEY (run_id, mst_key, step, part, place)';
    EXECUTE 'ALTER TABLE cerebro._visit ADD PRIMARY KEY (run_id, mst_key, step, place)';
    EXECUTE 'ALTER TABLE cerebro._evaluation ADD PRIMARY KEY (run_id, mst_key, epoch, dataset, segment, place)';
    -- Their first columns are what _failure is distributed by already.
    EXECUTE 'ALTER TABLE cerebro._metric SET DISTRIBUTED BY (run_id, mst_key)';
    EXECUTE 'ALTER TABLE cerebro._weights SET DISTRIBUTED BY (run_id, model_id)';

    -- Sessions take numbers in advance there; runs and what is asked of them count in the order of time.
    EXECUTE 'ALTER SEQUENCE cerebro._run_id_seq CACHE 1';
    EXECUTE 'ALTER SEQUENCE cerebro._request_id_seq CACHE 1';

    -- A statement about one key goes to one segment: the one that has the packed rows of that key, since both are
    -- distributed alike. Enough keys for a thousand segments to have some.
    EXECUTE 'CREATE TABLE cerebro._segment_key (dist_key integer PRIMARY KEY) DISTRIBUTED BY (dist_key)';
    EXECUTE 'INSERT INTO cerebro._segment_key SELECT generate_series(0, 16383)';
    EXECUTE 'COMMENT ON TABLE cerebro._segment_key IS ''Numbers, by which statements are sent to single segments.''';
END
$$;

-- A sequence, since it is read as it is at the moment and not as the reader's transaction sees the rest.
CREATE SEQUENCE cerebro._last_ending;
COMMENT ON SEQUENCE cerebro._last_ending IS 'The transaction in which the session behind a run last let go of one.';

-- Which sessions stand behind a run. An advisory lock alone proves nothing: code of a caller's that a session runs may take any.

CREATE TABLE cerebro._driver (
    run_id bigint PRIMARY KEY,
    pid integer NOT NULL,
    lock bigint NOT NULL,
    driver integer NOT NULL,
    sessions integer [] NOT NULL,
    at timestamptz NOT NULL
);
COMMENT ON TABLE cerebro._driver IS 'The sessions behind each run: pid is the one that holds the advisory lock, with lock as the lower half of its key; driver the one that decides what is done next; sessions those that train; at is when all of them were there.';

ALTER TABLE cerebro._driver ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._driver USING (EXISTS (
    SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) _driver.run_id));

-- How long code behind a table may take to let a run read it.
ALTER TABLE cerebro.settings DROP CONSTRAINT settings_name_check;
ALTER TABLE cerebro.settings ADD CONSTRAINT settings_name_check CHECK (name IN (
    'backend', 'connection', 'idle_minutes', 'look_seconds', 'max_parameters', 'memory_mb', 'retention_days', 'retries',
    'retry_seconds', 'segments', 'sessions', 'threads'));
COMMENT ON COLUMN cerebro.settings.name IS 'backend, connection, idle_minutes, look_seconds, max_parameters, memory_mb, retention_days, retries, retry_seconds, segments, sessions or threads';

-- Losses, metrics and layers that a superuser has registered: their source, who may use them, which runs use them.

CREATE TABLE cerebro._function (
    name text NOT NULL,
    version integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('loss', 'metric', 'layer')),
    digest text,
    source text,
    higher_is_better boolean,
    description text,
    registered_by text NOT NULL DEFAULT current_user,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, version),
    CHECK ((digest IS NULL) = (source IS NULL))
);
COMMENT ON TABLE cerebro._function IS 'Python source that a superuser has registered, one row for each version and never changed; a row without source ends all versions before it.';

CREATE TABLE cerebro._function_grant (
    name text NOT NULL,
    role regrole NOT NULL,
    granted_by text NOT NULL DEFAULT current_user,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, role)
);
COMMENT ON TABLE cerebro._function_grant IS 'Which roles may name a registered function; role 0 is everybody.';

CREATE TABLE cerebro._run_function (
    run_id bigint NOT NULL,
    digest text NOT NULL,
    PRIMARY KEY (run_id, digest)
);
COMMENT ON TABLE cerebro._run_function IS 'The registered functions of a run, in the version that it uses from its first visit to its last.';

-- Nobody is granted these tables; the policies stand in case somebody is.
ALTER TABLE cerebro._function ENABLE ROW LEVEL SECURITY;
ALTER TABLE cerebro._function_grant ENABLE ROW LEVEL SECURITY;
ALTER TABLE cerebro._run_function ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._run_function USING (EXISTS (
    SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) _run_function.run_id));

DO $$
BEGIN
    IF version() LIKE '%Greenplum%' THEN
        -- No replicated tables: code of a user's that a segment runs could read those.
        EXECUTE 'ALTER TABLE cerebro._function SET DISTRIBUTED BY (name)';
        EXECUTE 'ALTER TABLE cerebro._function_grant SET DISTRIBUTED BY (name)';
        EXECUTE 'ALTER TABLE cerebro._run_function SET DISTRIBUTED BY (run_id)';
    END IF;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro._function', '');
-- A role that was dropped since has no name to be restored by.
SELECT pg_catalog.pg_extension_config_dump(
    'cerebro._function_grant', 'WHERE role::oid = 0 OR role::oid IN (SELECT oid FROM pg_catalog.pg_roles)'
);
SELECT pg_catalog.pg_extension_config_dump('cerebro._run_function', '');

-- MADlib's list of functions, of which a run keeps the name.
ALTER TABLE cerebro._run ADD COLUMN object_table text;

ALTER TABLE cerebro._run ADD COLUMN spelled text NOT NULL DEFAULT '{}';
COMMENT ON COLUMN cerebro._run.spelled IS 'How the names of its tables were written in the call, for the summaries';

-- Where a publication has all tables, a row of a table without a key can be removed only if this is said. Greenplum has no publications.

DO $$
BEGIN
    IF version() NOT LIKE '%Greenplum%' THEN
        ALTER TABLE cerebro._run_event REPLICA IDENTITY FULL;
    END IF;
END
$$;

-- Only the owner reads and changes settings: pg_read_all_data would read a connection string, pg_write_all_data redirect it.

ALTER TABLE cerebro.settings ENABLE ROW LEVEL SECURITY;

-- Functions end in search_path no more: they read the caller's themselves. What replaces them comes with the other functions.
DO $$
DECLARE
    old regprocedure;
BEGIN
    FOR old IN
        SELECT p.oid
        FROM pg_depend AS d
        JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
        JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
        WHERE e.extname = 'cerebro' AND d.deptype = 'e' AND 'search_path' = ANY (p.proargnames)
    LOOP
        EXECUTE format('DROP FUNCTION %s', old);
    END LOOP;
END
$$;

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

-- Packed tables to which rows are added have versions, and runs know theirs.
ALTER TABLE cerebro._run ADD COLUMN packed_versions text NOT NULL DEFAULT '{}';
COMMENT ON COLUMN cerebro._run.packed_versions IS 'JSON: for each packed table its version when the run began, and below which number its buffers are; nothing in runs of older versions';

CREATE TABLE cerebro._drift (
    packed regclass NOT NULL,
    owner regrole NOT NULL,
    version integer NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    rows bigint NOT NULL,
    column_name text NOT NULL,
    nulls_before double precision,
    nulls double precision,
    unseen_before double precision,
    unseen double precision,
    mean_before double precision,
    mean double precision,
    stability double precision,
    PRIMARY KEY (packed, version, column_name)
);
COMMENT ON TABLE cerebro._drift IS 'How rows that were added to packed tables differ from those before them, a row for each column of each call.';

-- Nobody is granted this table; with no policy, whoever should be reads nothing.
ALTER TABLE cerebro._drift ENABLE ROW LEVEL SECURITY;

DO $$
BEGIN
    IF version() LIKE '%Greenplum%' THEN
        EXECUTE 'ALTER TABLE cerebro._drift SET DISTRIBUTED BY (version)';
    END IF;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro._drift', '');

-- Cross-validated runs: a config is there once for each fold that it leaves out.
ALTER TABLE cerebro._config ADD COLUMN config_key integer, ADD COLUMN fold integer;
COMMENT ON COLUMN cerebro._config.config_key IS 'Of a cross-validated run, the mst_key of the config in the model selection table; mst_key numbers the config with its fold';
COMMENT ON COLUMN cerebro._config.fold IS 'The fold that the config is not trained on; NULL where it is trained on all rows';

-- Runs of groups: a config is there once for each group, whose rows alone it is trained on.
ALTER TABLE cerebro._config ADD COLUMN group_id integer;
COMMENT ON COLUMN cerebro._config.config_key IS 'Of a cross-validated run or one of groups, the mst_key of the config in the model selection table; mst_key numbers the config with its fold or group';
COMMENT ON COLUMN cerebro._config.group_id IS 'The group whose rows alone the config is trained on; NULL where it is trained on all rows';

ALTER TABLE cerebro._config ADD COLUMN warm_key integer, ADD COLUMN class_counts text;
COMMENT ON COLUMN cerebro._config.warm_key IS 'The number that the config had in the run that it goes on from, where that is another one';
COMMENT ON COLUMN cerebro._config.class_counts IS 'JSON: of a group whose classes are balanced, how many rows each class has, by output';

ALTER TABLE cerebro._request ADD COLUMN config_key integer, ADD COLUMN group_id integer;
COMMENT ON COLUMN cerebro._request.config_key IS 'Of a new config on a group, which config it is';
COMMENT ON COLUMN cerebro._request.group_id IS 'The group on which a new config is to be trained';

CREATE TABLE cerebro._group (
    run_id bigint NOT NULL,
    group_id integer NOT NULL,
    key text NOT NULL,
    "rows" bigint NOT NULL,
    segments integer[] NOT NULL,
    classes integer,
    PRIMARY KEY (run_id, group_id)
);
COMMENT ON TABLE cerebro._group IS 'The groups of a run as they were when it began, each with the values of its columns and where its rows lie.';
COMMENT ON COLUMN cerebro._group.key IS 'JSON: the values of the columns that make groups';

ALTER TABLE cerebro._group ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._group USING (
    EXISTS (SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) _group.run_id));

DO $$
BEGIN
    IF version() LIKE '%Greenplum%' THEN
        EXECUTE 'ALTER TABLE cerebro._group SET DISTRIBUTED BY (run_id)';
    END IF;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro._group', '');

-- What no training of a config changes stands once for a run, and its states name it by a digest.
CREATE TABLE cerebro._frozen (
    run_id bigint NOT NULL,
    digest text NOT NULL,
    part integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run_id, digest, part)
);
ALTER TABLE cerebro._frozen ALTER COLUMN data SET STORAGE EXTERNAL;
COMMENT ON TABLE cerebro._frozen IS 'Weights that no training changes, in parts: those of frozen layers, which states name by their digest.';

ALTER TABLE cerebro._frozen ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._frozen USING (
    EXISTS (SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) _frozen.run_id));

DO $$
BEGIN
    IF version() LIKE '%Greenplum%' THEN
        EXECUTE 'ALTER TABLE cerebro._frozen SET DISTRIBUTED BY (run_id)';
    END IF;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro._frozen', '');

-- An administrator may name the folder of compiled programs, or none by an empty text.

ALTER TABLE cerebro.settings DROP CONSTRAINT settings_name_check, DROP CONSTRAINT settings_check;
ALTER TABLE cerebro.settings
    ADD CONSTRAINT settings_name_check CHECK (name IN (
        'backend', 'cache_folder', 'choosing', 'connection', 'idle_minutes', 'look_seconds', 'max_parameters',
        'memory_mb', 'retention_days', 'retries', 'retry_seconds', 'segments', 'sessions', 'threads')),
    ADD CONSTRAINT settings_check
        CHECK (name IN ('backend', 'cache_folder', 'choosing', 'connection') OR value ~ '^[0-9]{1,9}$'),
    ADD CONSTRAINT settings_folder_check CHECK (name <> 'cache_folder' OR value ~ '^(/|$)');
COMMENT ON COLUMN cerebro.settings.name IS 'backend, cache_folder, choosing, connection, idle_minutes, look_seconds, max_parameters, memory_mb, retention_days, retries, retry_seconds, segments, sessions or threads';
COMMENT ON COLUMN cerebro.settings.value IS 'The value as text; connection is a libpq connection string for segment sessions, cache_folder the path of a folder on each host';

-- The identity on the bytes of a datum, which array_send would convert element by element: the server's own function for
-- types that are binary compatible, declared for arrays. The reader (packing/arrays.py) checks every header.
CREATE OR REPLACE FUNCTION cerebro._array_bytes(anyarray) RETURNS bytea
LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS 'xmltotext';
COMMENT ON FUNCTION cerebro._array_bytes(anyarray) IS
'Internal: an array as the bytes that the server holds, so that the preprocessors read rows without converting each element.';

CREATE OR REPLACE FUNCTION cerebro._as_owner() RETURNS void
LANGUAGE plpython3u SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].run_pending()
$$;
COMMENT ON FUNCTION cerebro._as_owner() IS
'Internal: runs the one piece of work that the extension has laid out in this session, with the rights of the extension''s owner; refuses when there is none.';

CREATE OR REPLACE FUNCTION cerebro._boot() RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import ctypes
import sys
from importlib.util import find_spec


def refuse(message, **fields):
    # The name of the class begins the message.
    raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **fields})(message)


# On Greenplum a cancel would interrupt Python wherever it is, and leave modules half imported.
if hasattr(ctypes.PyDLL(None), "PLy_enter_python_intepreter"):
    ctypes.c_bool.in_dll(ctypes.PyDLL(None), "PLy_enter_python_intepreter").value = False
packages, site = "@PYTHON_DIR@", "@SITE_PACKAGES@"
loaded = sys.modules.get("cerebro_plpy")
if loaded is not None and not loaded.__file__.startswith(packages + "/"):
    refuse(
        "this session has loaded another version of cerebro",
        hint="Start a new session.",
        sqlstate="55000",
    )
# First, because the system's own folders and the home of the server's user may hold the same packages in other versions.
for folder in (site, packages):
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)
if find_spec("cerebro_plpy") is None:
    refuse(
        f"none of the Python code is in {packages}",
        hint="Run make install for this version of cerebro and this server. Where it stands in another folder by now,"
        " as after pg_upgrade, docs/operations.md has the command that tells the database.",
        sqlstate="58P01",
    )
missing = [name for name in ("numpy", "psycopg2", "keras") if find_spec(name) is None]
if not any(find_spec(name) for name in ("tensorflow", "jax", "torch")):
    missing.append("tensorflow (or jax, or torch)")
if missing:
    refuse(
        f"Python package {', '.join(missing)} is missing",
        detail=f"Packages are looked for in {site}.",
        hint="As the administrator of the server run: python%d.%d -m pip install --require-hashes --target=%s -r %s"
        % (*sys.version_info[:2], site, packages + "/requirements.lock"),
        sqlstate="58P01",
    )
import cerebro_plpy.engine.apart
import cerebro_plpy.entry

cerebro_plpy.engine.apart.watch()
# Not in GD: what is there goes with every function of a user's own PL/Python that is pickled.
sys.modules["cerebro_plpy.session"] = cerebro_plpy.entry
$$;
COMMENT ON FUNCTION cerebro._boot() IS
'Internal: loads the Python side of the extension once per session, from the folders that were fixed when it was installed.';

-- Greenplum alone has commands that are carried out statement by statement: cluster/procedure.py says why. None of this has a search_path
-- of its own: every segment would be told of it, twice for each call, and a procedure that ends transactions may have none. It is called in
-- segment sessions, which have a safe one from the beginning.
CREATE OR REPLACE FUNCTION cerebro._begin_command(command text, request text) RETURNS text []
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].begin_command(command, request)
$$;
COMMENT ON FUNCTION cerebro._begin_command(text, text) IS
'Internal: returns the first step of a command: its kind, its input, and statements.';

CREATE OR REPLACE FUNCTION cerebro._go_on(found text) RETURNS text []
LANGUAGE plpython3u AS $$
import sys
return sys.modules["cerebro_plpy.session"].go_on(found)
$$;
COMMENT ON FUNCTION cerebro._go_on(text) IS
'Internal: returns the next step of the command that is under way.';

CREATE OR REPLACE FUNCTION cerebro._show(name text) RETURNS boolean
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].show(name)
$$;
COMMENT ON FUNCTION cerebro._show(text) IS
'Internal: shows other sessions what this one is working on, when its command goes directly to a segment''s process.';

CREATE OR REPLACE PROCEDURE cerebro._command(command text, request text, INOUT answer text DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
    task text[] := cerebro._begin_command(command, request);
    found text;
    looks text[];
    look text;
BEGIN
    LOOP
        IF task[1] OPERATOR(pg_catalog.=) 'find' THEN
            EXECUTE task[3] INTO found USING task[2];
        ELSIF task[1] OPERATOR(pg_catalog.=) 'write' THEN
            EXECUTE task[3] USING task[2];
        ELSIF task[1] OPERATOR(pg_catalog.=) 'commit' THEN
            COMMIT;
        ELSIF task[1] OPERATOR(pg_catalog.=) 'look' THEN
            -- As the caller, who may do nothing with the command itself; and in a transaction of which nothing stays that the
            -- caller's own code may have done.
            looks := '{}';
            EXECUTE task[3];
            FOREACH look IN ARRAY task[5:] LOOP
                EXECUTE task[4] INTO found USING look;
                looks := pg_catalog.array_append(looks, found);
            END LOOP;
            ROLLBACK;
            found := pg_catalog.array_to_json(looks);
        ELSE
            answer := task[2];
            RETURN;
        END IF;
        task := cerebro._go_on(found);
    END LOOP;
END
$$;
COMMENT ON PROCEDURE cerebro._command(text, text, text) IS
'Internal: what a segment session does about a config on Greenplum; request and answer are JSON. Granted to nobody: segment sessions run as the owner.';

-- It looks at what there is and imports nothing, so that it answers where something is missing.
CREATE OR REPLACE FUNCTION cerebro._host_facts() RETURNS text
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import json, os, socket, subprocess, sys
from importlib.metadata import distributions

packages, site = "@PYTHON_DIR@", "@SITE_PACKAGES@"
facts = {"host": socket.gethostname(), "python": sys.version.split()[0], "gpus": [], "devices": [], "cores": len(os.sched_getaffinity(0))}
wanted = {"numpy": "numpy", "psycopg2": "psycopg2", "psycopg2-binary": "psycopg2", "keras": "keras", "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow", "jax": "jax", "torch": "torch"}
# A name of a package is the same with a dash or a line below.
names = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in distributions(path=[site])}
found = {wanted[name]: version for name, version in names.items() if name in wanted}
facts["engines"] = {name: version for name, version in found.items() if name in ("keras", "tensorflow", "jax", "torch")}
# The folder of the extension's Python code is named for its version.
if os.path.isfile(packages + "/cerebro_plpy/entry.py"):
    facts["cerebro"] = os.path.basename(os.path.dirname(packages))
missing = [] if "cerebro" in facts else ["cerebro's Python code in " + packages]
missing += [name + " in " + site for name in ("numpy", "psycopg2", "keras") if name not in found]
if not {"tensorflow", "jax", "torch"} & set(found):
    missing.append("tensorflow (or jax, or torch) in " + site)
facts["missing"] = ", ".join(missing) or None
# Those that the server's administrator lets its processes see; an engine that runs here has narrowed that to its own.
seen = os.environ.get("CEREBRO_SEEN_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
try:
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=index,uuid,memory.total,pci.bus_id,name", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, timeout=20)
    # Where there is no driver it says so in place of the list.
    lines = listed.stdout.splitlines() if listed.returncode == 0 else []
    for index, uuid, memory, bus, name in (map(str.strip, line.split(",", 4)) for line in lines if line.count(",") >= 4):
        if seen == "all" or {index, uuid} & {own.strip() for own in seen.split(",")}:
            facts["gpus"].append(name)
            facts["devices"].append(
                {"index": int(index), "id": uuid, "memory_mb": int(memory) if memory.isdigit() else None, "bus": bus, "name": name})
except (OSError, subprocess.TimeoutExpired):
    pass
return json.dumps(facts)
$$;
COMMENT ON FUNCTION cerebro._host_facts() IS
'Internal: what this process finds on its host: Python, engines, GPUs, and what is missing, as JSON.';

-- A value or a row as JSON, the same in every session: the server's own function, with each setting fixed that an output
-- function reads. `_text` fixes the same settings (tests/db/test_session_settings.py). The settings hold for this conversion
-- alone: what a caller's view or query computes still follows the caller's.
CREATE OR REPLACE FUNCTION cerebro._json(anyelement) RETURNS json
LANGUAGE internal STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
SET quote_all_identifiers = off
SET TimeZone = 'UTC'
SET DateStyle = 'ISO, YMD'
SET IntervalStyle = 'postgres'
SET bytea_output = 'hex' AS 'to_json';
COMMENT ON FUNCTION cerebro._json(anyelement) IS
'Internal: a value or a row as JSON, whatever the settings of the session.';

-- Greenplum alone has segments with processes of their own: store/cluster/places.py sends these calls there.
CREATE OR REPLACE FUNCTION cerebro._on_segment(command text, message bytea) RETURNS bytea
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].on_segment(command, message)
$$;
COMMENT ON FUNCTION cerebro._on_segment(text, bytea) IS
'Internal: what a segment''s own process does, training for example. Granted to nobody: sessions call it as the owner.';

CREATE OR REPLACE FUNCTION cerebro._work("order" text) RETURNS text
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].work(order)
$$;
COMMENT ON FUNCTION cerebro._work(text) IS
'Internal: what a segment''s own process does about a config, a visit for example. Granted to nobody: sessions call it as the owner.';

CREATE OR REPLACE FUNCTION cerebro._take_buffer(ticket text, buffer_id integer, shapes text, fields bytea[]) RETURNS integer
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].take_buffer(ticket, buffer_id, shapes, fields)
$$;
COMMENT ON FUNCTION cerebro._take_buffer(text, integer, text, bytea[]) IS
'Internal: hands a buffer to the process that has it on its segment. The caller''s own scan calls it; without the ticket of a load that is under way it refuses.';

CREATE OR REPLACE FUNCTION cerebro._take_row(ticket text, fields bytea[]) RETURNS integer
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].take_row(ticket, fields)
$$;
COMMENT ON FUNCTION cerebro._take_row(text, bytea[]) IS
'Internal: hands a row that is to be packed to the process that has it on its segment. The caller''s own scan calls it; without the ticket of the packing that is under way it refuses.';

CREATE OR REPLACE FUNCTION cerebro._give_pieces(
    ticket text, OUT dist_key integer, OUT buffer_id integer, OUT places bytea, OUT fields bytea[]
) RETURNS SETOF record
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].give_pieces(ticket)
$$;
COMMENT ON FUNCTION cerebro._give_pieces(text) IS
'Internal: what a segment''s process has of each buffer, from the rows that it has taken.';

CREATE OR REPLACE FUNCTION cerebro._join_pieces(widths integer[], places bytea[], fields bytea[]) RETURNS bytea[]
LANGUAGE plpython3u IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].join_pieces(widths, places, fields)
$$;
COMMENT ON FUNCTION cerebro._join_pieces(integer[], bytea[], bytea[]) IS
'Internal: makes one buffer of the pieces that the segments'' processes have given for it.';

CREATE OR REPLACE FUNCTION cerebro._give_predictions(
    ticket text,
    OUT id text,
    OUT class_name text,
    OUT class_value text,
    OUT prob double precision,
    OUT rank integer,
    OUT prediction double precision[]
) RETURNS SETOF record
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].give_predictions(ticket)
$$;
COMMENT ON FUNCTION cerebro._give_predictions(text) IS
'Internal: what a segment''s process has predicted for the rows that it has taken.';

-- What cerebro.predict_query goes through: the statement that it executes, and the function that this calls for each batch.
CREATE OR REPLACE FUNCTION cerebro._predict_statement(
    model regclass,
    query text,
    row_type oid,
    mst_key integer
) RETURNS text
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](True)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_statement(model, query, row_type, mst_key)
$$;
COMMENT ON FUNCTION cerebro._predict_statement(regclass, text, oid, integer) IS
'Internal: the statement that gives the rows of a query with their predictions.';

CREATE OR REPLACE FUNCTION cerebro._predict_batch(
    ticket text,
    data bytea[],
    texts text[],
    rows integer,
    OUT classes text[],
    OUT probabilities double precision[],
    OUT predictions double precision[]
) RETURNS record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 100000
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](True)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_batch(ticket, data, texts, rows)
$$;
COMMENT ON FUNCTION cerebro._predict_batch(text, bytea[], text[], integer) IS
'Internal: predicts some rows of the query that is under way.';

-- A row as JSON: PL/Python takes no record and no polymorphic type. The table comes by its number, since a regclass would be
-- looked up and written out for each row. Without a SET clause, which costs as much as a small net; the entry sets the
-- search_path where it runs statements.
CREATE OR REPLACE FUNCTION cerebro._predict_row(
    model oid,
    "row" text,
    mst_key integer,
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision,
    OUT probabilities jsonb
) RETURNS record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 1000 AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](True)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_row(model, row, mst_key)
$$;
COMMENT ON FUNCTION cerebro._predict_row(oid, text, integer) IS
'Internal: predicts one row that is given as JSON.';

-- On Greenplum a session's processes on the segments start with the search_path of the moment. Where that is the one of a function, inside a
-- transaction block, they are never told the caller's: DDL with unqualified names does not find its tables there for as long as the session lives, and
-- DROP TABLE IF EXISTS leaves them. Functions in SQL and PL/pgSQL that reach the segments therefore start them first.
CREATE OR REPLACE FUNCTION cerebro._reach_segments() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own text;
BEGIN
    IF current_setting('gp_role', true) IS DISTINCT FROM 'dispatch' THEN
        RETURN;
    END IF;
    -- A session that has ever set its path has all its processes.
    IF (SELECT count(*) FROM gp_backend_info() AS b WHERE b.type = 'w')
        < (SELECT count(*) FROM gp_segment_configuration AS s WHERE s.content >= 0 AND s.role = 'p')
    THEN
        SELECT s.reset_val INTO own FROM pg_settings AS s WHERE s.name = 'search_path';
        PERFORM set_config('search_path', own, true);
    END IF;
END
$$;
COMMENT ON FUNCTION cerebro._reach_segments() IS
'Internal: on Greenplum, starts what is missing of the session''s processes on the segments, with the path that the session began with.';

CREATE OR REPLACE FUNCTION cerebro._segment(command text, request text) RETURNS text
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].segment(command, request)
$$;
COMMENT ON FUNCTION cerebro._segment(text, text) IS
'Internal: what a segment session does, a visit for example; request and answer are JSON. Granted to nobody: segment sessions run as the owner.';

-- A value as the text that its type writes, the same in every session: the server's own concat of one value, with the
-- settings of `_json`.
CREATE OR REPLACE FUNCTION cerebro._text(anyelement) RETURNS text
LANGUAGE internal STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
SET quote_all_identifiers = off
SET TimeZone = 'UTC'
SET DateStyle = 'ISO, YMD'
SET IntervalStyle = 'postgres'
SET bytea_output = 'hex' AS 'text_concat';
COMMENT ON FUNCTION cerebro._text(anyelement) IS
'Internal: a value as text, whatever the settings of the session.';

CREATE OR REPLACE FUNCTION cerebro.add_configs(
    run_id bigint,
    model_selection_table varchar
) RETURNS SETOF integer
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].bring_in("add_configs", run_id, model_selection_table)
$$;
COMMENT ON FUNCTION cerebro.add_configs(bigint, varchar) IS
'Adds the configs of a model selection table to one of your running runs and returns their keys in the run. A run of groups trains them for every group.';
CREATE OR REPLACE FUNCTION cerebro.add_configs(
    run_id bigint,
    model_id_list integer[],
    compile_params_grid varchar,
    fit_params_grid varchar,
    search_type varchar DEFAULT 'grid',
    num_configs integer DEFAULT NULL,
    random_state integer DEFAULT NULL
) RETURNS SETOF integer
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].bring_in("add_space", *args)
$$;
COMMENT ON FUNCTION cerebro.add_configs(bigint, integer[], varchar, varchar, varchar, integer, integer) IS
'Adds configs from grids of parameters, or from a space in JSON, to one of your running runs: every combination (grid), or a given number of random ones (random). Returns their keys in the run.';

CREATE OR REPLACE FUNCTION cerebro.append_rows(
    packed_table varchar,
    source_table varchar,
    dependent_varname varchar DEFAULT NULL,
    independent_varname varchar DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS integer
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].prepare(
    "append", packed_table, source_table, dependent_varname, independent_varname, options)
$$;
COMMENT ON FUNCTION cerebro.append_rows(varchar, varchar, varchar, varchar, jsonb) IS
'Adds the rows of a table or view to a packed table, and returns the packed table''s new version. The rows are packed like the rows before them, with the same statistics, classes, constant and seed. Existing buffers do not change. Runs that have begun keep the version that they began with, also when they are resumed; new runs and warm starts train on all rows. Columns are found by the names that the packed table has; if yours have other names, give dependent_varname and independent_varname. A new class takes a place that num_classes has left free; if there is none, it is refused. In a table in groups, rows go to their groups, and new groups come after the others. The view cerebro.drift shows how the rows differ from those before. Options: memory_mb.';

CREATE OR REPLACE FUNCTION cerebro.clone_config(
    run_id bigint,
    mst_key integer,
    compile_params varchar DEFAULT NULL,
    fit_params varchar DEFAULT NULL,
    with_state boolean DEFAULT TRUE
) RETURNS integer
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].bring_in("clone_config", *args)
$$;
COMMENT ON FUNCTION cerebro.clone_config IS
'Adds a copy of a config to one of your running runs. The copy has the architecture of the original, its parameters unless you give others, and its state after its last whole epoch unless with_state is false. In a run of groups it is trained on the group of the original. Returns the new key.';

CREATE OR REPLACE FUNCTION cerebro.config_state(
    run_id bigint,
    mst_key integer,
    OUT number integer,
    OUT name text,
    OUT kind text,
    OUT shape integer[],
    OUT dtype text,
    OUT data bytea
) RETURNS SETOF record
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].config_state(run_id, mst_key)
$$;
COMMENT ON FUNCTION cerebro.config_state IS
'Returns the newest stored state of a config of one of your runs. It has one row for each variable, in the order of Keras'' model.variables and optimizer.variables: its kind (weight, optimizer or other), shape, element type, and its values, raw and little-endian.';

CREATE OR REPLACE FUNCTION cerebro.confusion_matrix(
    model_table text,
    packed_table text,
    mst_key integer DEFAULT NULL
) RETURNS TABLE (label text, predicted text, "rows" bigint)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].confusion(model_table, packed_table, mst_key)
$$;
COMMENT ON FUNCTION cerebro.confusion_matrix(text, text, integer) IS
'Counts the rows of a packed table by their label and by the class that a model predicts for them: one row for each pair that occurs. Name the validation table, or the table that the model trained on. Without mst_key the best config answers.';

CREATE OR REPLACE FUNCTION cerebro.convert_array_to_bytea(var real[]) RETURNS bytea
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].array_to_bytes(var, "<f4")
$$;
COMMENT ON FUNCTION cerebro.convert_array_to_bytea(real[]) IS
'Converts an array to raw little-endian float32, the form of features in a packed table.';

CREATE OR REPLACE FUNCTION cerebro.convert_array_to_bytea(var smallint[]) RETURNS bytea
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].array_to_bytes(var, "<i2")
$$;
COMMENT ON FUNCTION cerebro.convert_array_to_bytea(smallint[]) IS
'Converts an array to raw little-endian int16, the form of one-hot labels in a packed table.';

CREATE OR REPLACE FUNCTION cerebro.convert_bytea_to_real_array(var bytea) RETURNS real[]
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].bytes_to_array(var, "<f4")
$$;
COMMENT ON FUNCTION cerebro.convert_bytea_to_real_array(bytea) IS
'Converts the features of a packed table, raw float32, to a flat array.';

CREATE OR REPLACE FUNCTION cerebro.convert_bytea_to_smallint_array(var bytea) RETURNS smallint[]
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].bytes_to_array(var, "<i2")
$$;
COMMENT ON FUNCTION cerebro.convert_bytea_to_smallint_array(bytea) IS
'Converts the one-hot labels of a packed table, raw int16, to a flat array.';

CREATE OR REPLACE FUNCTION cerebro.create_packed_table(
    output_table varchar,
    summary json
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].prepare("empty", output_table, summary)
$$;
COMMENT ON FUNCTION cerebro.create_packed_table IS
'Creates an empty packed table and its summary, for buffers that were packed elsewhere. You insert the buffers as rows. The keys of summary are the columns of <table>_summary. Class values are text, and class_value_types has their types by column.';

CREATE OR REPLACE FUNCTION cerebro.delete_config(
    run_id bigint,
    mst_key integer
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].ask("delete_config", run_id, mst_key)
$$;
COMMENT ON FUNCTION cerebro.delete_config IS
'Removes a config from one of your running runs. It gets no more visits, and the result tables leave it out.';

CREATE OR REPLACE FUNCTION cerebro.delete_custom_function(
    object_table varchar,
    id integer
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].function("delete_custom_function", object_table, id)
$$;
COMMENT ON FUNCTION cerebro.delete_custom_function(varchar, integer) IS
'Removes a function from an object table, and drops the table when no row is left. To end the registered function, call unregister_function.';
CREATE OR REPLACE FUNCTION cerebro.delete_custom_function(
    object_table varchar,
    name text
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].function("delete_custom_function", object_table, name)
$$;
COMMENT ON FUNCTION cerebro.delete_custom_function(varchar, text) IS
'Removes a function from an object table, and drops the table when no row is left. To end the registered function, call unregister_function.';

CREATE OR REPLACE FUNCTION cerebro.delete_keras_model(
    keras_model_arch_table varchar,
    model_id integer
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].delete_keras_model(keras_model_arch_table, model_id)
$$;
COMMENT ON FUNCTION cerebro.delete_keras_model IS
'Removes an architecture from its table, and drops the table when no row is left.';

CREATE OR REPLACE FUNCTION cerebro.describe_columns(
    source_table varchar,
    options jsonb DEFAULT NULL
) RETURNS TABLE (
    column_name text,
    type text,
    nulls bigint,
    distinct_values bigint,
    minimum text,
    maximum text,
    mean double precision,
    becomes jsonb,
    reason text
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].describe_columns(source_table, options)
$$;
COMMENT ON FUNCTION cerebro.describe_columns(varchar, jsonb) IS
'Shows what the option columns of training_preprocessor_dl would make of each column of a table or view, and why. Each column has a row with its type, the number of rows that are NULL, the number of different values (of categories and text), the range (of numbers and dates), what the column becomes (NULL if it is left out) and the reason. Options: columns, exclude.';

CREATE OR REPLACE FUNCTION cerebro.diagnose(
    OUT item text,
    OUT status text,
    OUT found text,
    OUT advice text
) RETURNS SETOF record
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].diagnose()
$$;
COMMENT ON FUNCTION cerebro.diagnose IS
'Checks whether this server is ready to train: Python packages, logins of segment sessions, connections for them, processors, memory, disk and GPUs, one row each. status is ok, note or wrong, and advice says what to do.';

CREATE OR REPLACE FUNCTION cerebro.enable_lora(
    keras_model_arch_table varchar,
    model_id integer,
    lora_rank integer,
    layers text[] DEFAULT NULL,
    train text[] DEFAULT NULL
) RETURNS integer
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].enable_lora(keras_model_arch_table, model_id, lora_rank, layers, train)
$$;
COMMENT ON FUNCTION cerebro.enable_lora IS
'Adds a copy of a net to its table of architectures, with the same weights and with low-rank adapters (Keras'' lora_rank) on the layers named in layers: Dense, EinsumDense, Embedding or Conv; * stands for any letters. By default all layers that can have an adapter get one, except those that give the outputs. The layers named in train are trained whole; by default these are the layers that give the outputs. All other layers are frozen. Returns the new model_id.';

CREATE OR REPLACE FUNCTION cerebro.ensemble(
    model_table varchar,
    output_table varchar,
    size integer DEFAULT 25,
    metric text DEFAULT NULL,
    packed_table varchar DEFAULT NULL
) RETURNS TABLE (
    mst_key integer,
    weight double precision
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].ensemble(model_table, output_table, size, metric, packed_table)
$$;
COMMENT ON FUNCTION cerebro.ensemble(varchar, varchar, integer, text, varchar) IS
'Joins models of a table to one net that answers with their weighted mean. The rows of packed_table (by default the validation table of the run) choose: one model after the other, each the one that improves the mean most; a model may be chosen several times. size is the number of rounds, metric what is to improve: logloss or accuracy for classes, rmse or mae for a quantity. Creates the tables output_table and output_table_summary, as madlib_fit does, so all functions that predict take it. Returns the models with their weights.';

CREATE OR REPLACE FUNCTION cerebro.explain_automl(
    source_table varchar,
    model_arch_table varchar,
    model_id_list integer[],
    compile_params_grid varchar,
    fit_params_grid varchar,
    automl_method varchar DEFAULT 'hyperband',
    automl_params varchar DEFAULT NULL,
    random_state integer DEFAULT NULL,
    use_gpus boolean DEFAULT FALSE,
    validation_table varchar DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    options jsonb DEFAULT NULL,
    format text DEFAULT 'text',
    probe boolean DEFAULT FALSE,
    what_if jsonb DEFAULT NULL
) RETURNS TABLE ("QUERY PLAN" text)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].explain("automl", *args)
$$;
COMMENT ON FUNCTION cerebro.explain_automl IS
'Shows the plan of madlib_automl with these arguments. What a search trains depends on its results, so the search is simulated with invented results; the range covers them. The plan says how long the search would take, as a range, and why: compiling, reading, training, writing and measuring for each kind of config, waiting segments, memory, bytes of states and of the log, and what would be cheaper. Estimates rest on what earlier runs on this server have measured. format is text or json. With probe, a few mini-batches of each kind of config are timed first, on invented rows. what_if is a JSON object with other facts to assume: rows, segments, threads, backend or epochs. Nothing is written, and no session is opened.';

CREATE OR REPLACE FUNCTION cerebro.explain_fit(
    source_table varchar,
    model_selection_table varchar,
    num_iterations integer,
    use_gpus boolean DEFAULT FALSE,
    validation_table varchar DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    options jsonb DEFAULT NULL,
    format text DEFAULT 'text',
    probe boolean DEFAULT FALSE,
    what_if jsonb DEFAULT NULL
) RETURNS TABLE ("QUERY PLAN" text)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].explain("fit", *args)
$$;
COMMENT ON FUNCTION cerebro.explain_fit IS
'Shows the plan of madlib_fit_multiple_model with these arguments, as EXPLAIN does for a query. The plan says how long the run would take, as a range, and why: compiling, reading, training, writing and measuring for each kind of config, waiting segments, memory, bytes of states and of the log, and what would be cheaper. Estimates rest on what earlier runs on this server have measured. format is text or json. With probe, a few mini-batches of each kind of config are timed first, on invented rows. what_if is a JSON object with other facts to assume: rows, segments, threads, backend or epochs. Nothing is written, and no session is opened.';

CREATE OR REPLACE FUNCTION cerebro.explain_run(
    run_id bigint,
    format text DEFAULT 'text'
) RETURNS TABLE ("QUERY PLAN" text)
LANGUAGE plpython3u
SET jit = off AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].explain("run", run_id, format)
$$;
COMMENT ON FUNCTION cerebro.explain_run IS
'Shows the plan of a run that is under way or over. It compares what the run took with what earlier runs would have made you expect. format is text or json.';

CREATE OR REPLACE FUNCTION cerebro.forget(
    run_id bigint
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].forget(run_id)
$$;
COMMENT ON FUNCTION cerebro.forget IS
'Removes the states and log rows of one of your runs. Its result tables stay, but nothing can continue from its states any more.';

CREATE OR REPLACE FUNCTION cerebro.generate_model_configs(
    model_arch_table varchar,
    model_selection_table varchar,
    model_id_list integer[],
    compile_params_grid varchar,
    fit_params_grid varchar,
    search_type varchar DEFAULT 'grid',
    num_configs integer DEFAULT NULL,
    random_state integer DEFAULT NULL,
    object_table varchar DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].generate_model_configs(*args)
$$;
COMMENT ON FUNCTION cerebro.generate_model_configs IS
'Creates a model selection table, or adds to one, from grids of parameters: every combination (grid), or a given number of random ones (random).';

CREATE OR REPLACE FUNCTION cerebro.gpu_configuration(
    output_table text,
    source text DEFAULT 'tensorflow'
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].gpu_configuration(output_table, source)
$$;
COMMENT ON FUNCTION cerebro.gpu_configuration IS
'Creates a table of the GPUs of the hosts that have any (hostname, gpu_descr). Both sources, tensorflow and nvidia, list what nvidia-smi finds, each in its own words. Neither loads TensorFlow.';

CREATE OR REPLACE FUNCTION cerebro.grant_function(
    name text,
    role name
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].function("grant_function", name, role)
$$;
COMMENT ON FUNCTION cerebro.grant_function IS
'Lets a role name a registered function in configs and architectures. The role public means every role. Only a superuser may call it.';

CREATE OR REPLACE FUNCTION cerebro.grant_model_access(model regclass, role name) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place oid;
    own_schema name;
    own_name name;
    part regclass;
BEGIN
    PERFORM cerebro._reach_segments();
    IF NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = role) THEN
        RAISE EXCEPTION 'cerebro: role % does not exist', coalesce(quote_ident(role), 'NULL')
            USING ERRCODE = 'undefined_object', HINT = 'Name one role.';
    END IF;
    SELECT c.relnamespace, n.nspname, c.relname INTO place, own_schema, own_name
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = model;
    -- A longer name would be cut to that of the table itself.
    IF own_name IS NULL OR octet_length(own_name || '_summary') > 63
        OR to_regclass(format('%I.%I', own_schema, own_name || '_summary')) IS NULL
    THEN
        RAISE EXCEPTION 'cerebro: % is not a model table: %_summary does not exist', coalesce(model::text, 'NULL'), coalesce(own_name, '')
            USING ERRCODE = 'wrong_object_type', HINT = 'Name the table that holds the models.';
    END IF;
    IF NOT has_schema_privilege(role, 'cerebro', 'USAGE') THEN
        IF NOT pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'cerebro'), 'USAGE') THEN
            RAISE EXCEPTION 'cerebro: role % may not use cerebro yet', quote_ident(role)
                USING ERRCODE = 'insufficient_privilege',
                HINT = format('A superuser opens it: SELECT cerebro.grant_usage(%L).', role);
        END IF;
        PERFORM cerebro.grant_usage(role);
    END IF;
    FOREACH part IN ARRAY ARRAY[
        model, to_regclass(format('%I.%I', own_schema, own_name || '_info')),
        to_regclass(format('%I.%I', own_schema, own_name || '_summary'))]
    LOOP
        IF part IS NOT NULL THEN
            IF NOT has_table_privilege(part, 'SELECT WITH GRANT OPTION') THEN
                RAISE EXCEPTION 'cerebro: permission denied for table %', part
                    USING ERRCODE = 'insufficient_privilege', HINT = 'The owner of the tables calls this.';
            END IF;
            EXECUTE format('GRANT SELECT ON TABLE %s TO %I', part, role);
        END IF;
    END LOOP;
    IF NOT has_schema_privilege(role, place, 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', own_schema, role);
        IF NOT has_schema_privilege(role, place, 'USAGE') THEN
            RAISE EXCEPTION 'cerebro: permission denied for schema %', quote_ident(own_schema)
                USING ERRCODE = 'insufficient_privilege',
                HINT = format('Its owner opens it: GRANT USAGE ON SCHEMA %I TO %I.', own_schema, role);
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION cerebro.grant_model_access(regclass, name) IS
'Lets a role predict with a model table, evaluate it and read its models. It grants SELECT on the table, its _info and its _summary, and USAGE on their schema. If a superuser calls it, it also calls grant_usage. The owner of the tables calls it.';

CREATE OR REPLACE FUNCTION cerebro.help(
    name text DEFAULT NULL,
    OUT task text,
    OUT call text,
    OUT what text
) RETURNS SETOF record
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
WITH listed (number, task, name) AS (
    VALUES
    (1, 'prepare rows', 'describe_columns'), (2, 'prepare rows', 'train_test_split'), (3, 'prepare rows', 'windows'),
    (4, 'prepare rows', 'training_preprocessor_dl'), (5, 'prepare rows', 'validation_preprocessor_dl'),
    (6, 'prepare rows', 'append_rows'), (7, 'say what to train', 'load_net'), (8, 'say what to train', 'show_net'),
    (9, 'say what to train', 'load_keras_model'), (10, 'say what to train', 'generate_model_configs'),
    (11, 'train', 'train'), (12, 'train', 'explain_fit'), (13, 'train', 'madlib_fit'),
    (14, 'train', 'madlib_fit_multiple_model'), (15, 'train', 'madlib_automl'), (16, 'watch', 'runs'),
    (17, 'watch', 'progress'), (18, 'watch', 'leaderboard'), (19, 'watch', 'metrics'), (20, 'watch', 'wait'),
    (21, 'steer', 'pause'), (22, 'steer', 'resume'), (23, 'steer', 'stop'), (24, 'steer', 'stop_config'),
    (25, 'steer', 'clone_config'), (26, 'steer', 'add_configs'), (27, 'use a model', 'predict'),
    (28, 'use a model', 'predict_query'), (29, 'use a model', 'madlib_predict'),
    (30, 'use a model', 'madlib_evaluate'), (31, 'use a model', 'confusion_matrix'),
    (32, 'look after it', 'drift'), (33, 'look after it', 'diagnose'), (34, 'look after it', 'sizes'),
    (35, 'look after it', 'forget'), (36, 'look after it', 'grant_usage'), (37, 'look after it', 'grant_model_access'),
    (38, 'look after it', 'version')
), present (name, call, signature, what, oid) AS (
    SELECT
        p.proname::text,
        'cerebro.' || p.proname || '(' || CASE WHEN p.pronargs > 0 THEN '…' ELSE '' END || ')',
        'cerebro.' || p.proname || '(' || pg_get_function_arguments(p.oid) || ')',
        obj_description(p.oid, 'pg_proc'),
        p.oid
    FROM pg_proc AS p WHERE p.pronamespace = 'cerebro'::regnamespace AND p.proname NOT LIKE '\_%'
    UNION ALL
    SELECT c.relname::text, 'cerebro.' || c.relname, 'cerebro.' || c.relname, obj_description(c.oid, 'pg_class'), c.oid
    FROM pg_class AS c
    WHERE c.relnamespace = 'cerebro'::regnamespace AND c.relkind = 'v' AND c.relname NOT LIKE '\_%'
), told (name, call, signature, what, oid) AS (
    -- A second name has what its first name does.
    SELECT x.name, x.call, x.signature, COALESCE((
        SELECT y.what FROM present AS y WHERE x.what = 'The same as ' || y.name || '.' ORDER BY y.oid LIMIT 1
    ), x.what), x.oid
    FROM present AS x
), asked (word) AS (
    SELECT left(regexp_replace(lower(help.name), '^cerebro\.', ''), 63)
), letters (word, letter, number) AS (
    -- Names of the same letters are alike, whatever is swapped or missing.
    SELECT w.word, substr(w.word, g.place, 1), row_number() OVER (PARTITION BY w.word, substr(w.word, g.place, 1))
    FROM (SELECT a.word FROM asked AS a UNION SELECT x.name FROM present AS x) AS w
    CROSS JOIN LATERAL generate_series(1, length(w.word)) AS g (place)
), alike (name, likeness) AS (
    SELECT
        x.name,
        CASE WHEN position(a.word IN x.name) > 0 OR position(a.word IN lower(x.what)) > 0 THEN 1 ELSE 0 END
        + 2.0 * (
            SELECT count(*) FROM letters AS p JOIN letters AS q ON q.letter = p.letter AND q.number = p.number
            WHERE p.word = a.word AND q.word = x.name
        ) / (length(a.word) + length(x.name))
    FROM (SELECT y.name, string_agg(y.what, ' ') AS what FROM told AS y GROUP BY y.name) AS x CROSS JOIN asked AS a
    WHERE length(a.word) > 1 AND NOT EXISTS (SELECT FROM present AS y WHERE y.name = a.word)
), chosen AS (
    SELECT l.number, l.task, x.call, regexp_replace(x.what, '(\. |: | \(|, ).*', '') AS what
    FROM listed AS l
    CROSS JOIN LATERAL (SELECT y.* FROM told AS y WHERE y.name = l.name ORDER BY y.oid LIMIT 1) AS x
    WHERE help.name IS NULL
    UNION ALL
    SELECT 0, COALESCE((SELECT l.task FROM listed AS l WHERE l.name = x.name), ''), x.signature, x.what
    FROM told AS x JOIN asked AS a ON a.word = x.name
    UNION ALL
    SELECT
        row_number() OVER (ORDER BY n.likeness DESC, n.name),
        format('nothing is called "%s"; like it', help.name), x.call, regexp_replace(x.what, '(\. |: | \(|, ).*', '')
    FROM (SELECT y.* FROM alike AS y WHERE y.likeness >= 0.75 ORDER BY y.likeness DESC, y.name LIMIT 5) AS n
    CROSS JOIN LATERAL (SELECT y.* FROM told AS y WHERE y.name = n.name ORDER BY y.oid LIMIT 1) AS x
    UNION ALL
    SELECT 0, format('nothing is called "%s"', help.name), 'cerebro.help()', 'lists what there is'
    WHERE help.name IS NOT NULL AND NOT EXISTS (SELECT FROM alike AS y WHERE y.likeness >= 0.75)
        AND NOT EXISTS (SELECT FROM present AS x JOIN asked AS a ON a.word = x.name)
)
SELECT o.task, o.call, rtrim(o.what, '.') FROM chosen AS o ORDER BY o.number, o.call
$$;
COMMENT ON FUNCTION cerebro.help(text) IS
'Lists functions and views by task. With the name of a function or view, it shows all parameters and what the function or view does. With another word, it lists those with a similar name or with the word in their description.';

CREATE OR REPLACE FUNCTION cerebro.hyperband_schedule(
    schedule_table varchar,
    r integer,
    eta integer DEFAULT 3,
    skip_last integer DEFAULT 0
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].hyperband_schedule(schedule_table, r, eta, skip_last)
$$;
COMMENT ON FUNCTION cerebro.hyperband_schedule IS
'Creates a table of the rungs of a Hyperband search with these parameters: rung i of bracket s trains n_i configs until they have r_i epochs.';

CREATE OR REPLACE FUNCTION cerebro.last_run() RETURNS bigint
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].last_run()
$$;
COMMENT ON FUNCTION cerebro.last_run() IS
'Returns the number of the newest run that you began in this session, as currval does for a sequence.';

CREATE OR REPLACE FUNCTION cerebro.load_custom_function(
    object_table varchar,
    object bytea,
    name text,
    description text DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].function("load_custom_function", *args)
$$;
COMMENT ON FUNCTION cerebro.load_custom_function IS
'Registers a loss or metric that dill has serialized, and lists it in an object table, which is created if it does not exist. Only a superuser may call it, and the server needs the package dill. To register source code, call register_function.';

CREATE OR REPLACE FUNCTION cerebro.load_keras_model(
    keras_model_arch_table varchar,
    model_arch json,
    model_weights bytea DEFAULT NULL,
    name text DEFAULT NULL,
    description text DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].load_keras_model(*args)
$$;
COMMENT ON FUNCTION cerebro.load_keras_model IS
'Checks a Keras architecture (JSON of Keras 3 or Keras 2, with weights if they are given) and adds it to a table of architectures, which is created if it does not exist.';

CREATE OR REPLACE FUNCTION cerebro.load_model_selection_table(
    model_arch_table varchar,
    model_selection_table varchar,
    model_id_list integer[],
    compile_params_list varchar[],
    fit_params_list varchar[],
    object_table varchar DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].load_model_selection_table(*args)
$$;
COMMENT ON FUNCTION cerebro.load_model_selection_table IS
'Creates a model selection table: one config for every combination of architectures, compile parameters and fit parameters.';

CREATE OR REPLACE FUNCTION cerebro.load_net(
    keras_model_arch_table varchar,
    packed_table varchar,
    net text,
    params jsonb DEFAULT NULL
) RETURNS integer[]
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].load_net(keras_model_arch_table, packed_table, net, params)
$$;
COMMENT ON FUNCTION cerebro.load_net(varchar, varchar, text, jsonb) IS
'Writes a net that fits a packed table, and adds it to a table of architectures, which is created if it does not exist. net is a line of layers with Keras'' names (Dense(128, activation=''relu''), Dropout(0.2)); inputs and outputs follow from the packed table. Or net is the name of a starting point: linear, tabular, tabm, text, image, series. params are the parameters of a starting point (width, depth, dropout, activation; of tabm also members, pieces, embedding); lists give one net for each combination. Returns the model_ids.';

CREATE OR REPLACE FUNCTION cerebro.load_top_k_accuracy_function(
    object_table varchar,
    k integer
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].function("load_top_k_accuracy_function", object_table, k)
$$;
COMMENT ON FUNCTION cerebro.load_top_k_accuracy_function IS
'Lists the metric top_<k>_accuracy, which comes with cerebro, in an object table, which is created if it does not exist.';

CREATE OR REPLACE FUNCTION cerebro.madlib_automl(
    source_table varchar,
    model_output_table varchar,
    model_arch_table varchar,
    model_selection_table varchar,
    model_id_list integer[],
    compile_params_grid varchar,
    fit_params_grid varchar,
    automl_method varchar DEFAULT 'hyperband',
    automl_params varchar DEFAULT NULL,
    random_state integer DEFAULT NULL,
    object_table varchar DEFAULT NULL,
    use_gpus boolean DEFAULT FALSE,
    validation_table varchar DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    name varchar DEFAULT NULL,
    description varchar DEFAULT NULL,
    use_caching boolean DEFAULT FALSE,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].automl(*args)
$$;
COMMENT ON FUNCTION cerebro.madlib_automl IS
'The same as madlib_keras_automl.';

CREATE OR REPLACE FUNCTION cerebro.madlib_evaluate(
    model_table varchar,
    test_table varchar,
    output_table varchar,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].evaluate(*args)
$$;
COMMENT ON FUNCTION cerebro.madlib_evaluate IS
'The same as madlib_keras_evaluate.';

CREATE OR REPLACE FUNCTION cerebro.madlib_fit(
    source_table varchar,
    model varchar,
    model_arch_table varchar,
    model_id integer,
    compile_params varchar,
    fit_params varchar,
    num_iterations integer,
    use_gpus boolean DEFAULT FALSE,
    validation_table varchar DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    warm_start boolean DEFAULT FALSE,
    name varchar DEFAULT NULL,
    description varchar DEFAULT NULL,
    object_table varchar DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].fit(*args)
$$;
COMMENT ON FUNCTION cerebro.madlib_fit IS
'The same as madlib_keras_fit.';

CREATE OR REPLACE FUNCTION cerebro.madlib_fit_multiple_model(
    source_table varchar,
    model_output_table varchar,
    model_selection_table varchar,
    num_iterations integer,
    use_gpus boolean DEFAULT FALSE,
    validation_table varchar DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    warm_start boolean DEFAULT FALSE,
    name varchar DEFAULT NULL,
    description varchar DEFAULT NULL,
    use_caching boolean DEFAULT FALSE,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].fit_multiple_model(*args)
$$;
COMMENT ON FUNCTION cerebro.madlib_fit_multiple_model IS
'The same as madlib_keras_fit_multiple_model.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_automl(
    source_table varchar,
    model_output_table varchar,
    model_arch_table varchar,
    model_selection_table varchar,
    model_id_list integer[],
    compile_params_grid varchar,
    fit_params_grid varchar,
    automl_method varchar DEFAULT 'hyperband',
    automl_params varchar DEFAULT NULL,
    random_state integer DEFAULT NULL,
    object_table varchar DEFAULT NULL,
    use_gpus boolean DEFAULT FALSE,
    validation_table varchar DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    name varchar DEFAULT NULL,
    description varchar DEFAULT NULL,
    use_caching boolean DEFAULT FALSE,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].automl(*args)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_automl IS
'Searches a space of configs. It writes all models, their metrics and a summary to three tables, and the best config to a model selection table. The methods are hyperband, hyperopt, asha, median, pbt and tpe. The options are those of a fit except patience, min_delta and target. On a table that was packed with group_by, it searches each group separately; with the option search "all_groups", one search decides for all groups.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_evaluate(
    model_table varchar,
    test_table varchar,
    output_table varchar,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].evaluate(*args)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_evaluate IS
'Computes the loss and the metrics of a trained model on all rows of a packed table. mst_key selects one of several models; without it the best one is evaluated. The rows must be packed in the same way as the training rows.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_fit(
    source_table varchar,
    model varchar,
    model_arch_table varchar,
    model_id integer,
    compile_params varchar,
    fit_params varchar,
    num_iterations integer,
    use_gpus boolean DEFAULT FALSE,
    validation_table varchar DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    warm_start boolean DEFAULT FALSE,
    name varchar DEFAULT NULL,
    description varchar DEFAULT NULL,
    object_table varchar DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].fit(*args)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_fit IS
'Trains one architecture with one set of parameters on a packed table, and writes the model and its summary to two tables. The options are those of madlib_fit_multiple_model. On a table that was packed with group_by it trains a model for each group, and writes the tables of madlib_fit_multiple_model.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_fit_multiple_model(
    source_table varchar,
    model_output_table varchar,
    model_selection_table varchar,
    num_iterations integer,
    use_gpus boolean DEFAULT FALSE,
    validation_table varchar DEFAULT NULL,
    metrics_compute_frequency integer DEFAULT NULL,
    warm_start boolean DEFAULT FALSE,
    name varchar DEFAULT NULL,
    description varchar DEFAULT NULL,
    use_caching boolean DEFAULT FALSE,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].fit_multiple_model(*args)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_fit_multiple_model IS
'Trains every config of a model selection table on a packed table by Model Hopper Parallelism, and writes the models, their metrics and a summary to three tables. The options are backend, threads, memory_mb and seed; patience, min_delta, target, max_seconds and max_visits, which end training early; restore_best, max_configs, replay, order, plan, hybrid, cross_validate, materialize, budget_mb, fuse, checkpoint_every, min_rows, min_classes, fallback, groups and background. On a table that was packed with group_by, it trains each config on each group separately; with warm_start and the option groups "changed", only on groups that have new rows.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type varchar DEFAULT 'prob',
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict(
    varchar, varchar, varchar, varchar, varchar, varchar, boolean, integer
) IS
'Predicts the rows of a table (one example per row, not packed) with a trained model and writes the predictions to a new table. Its columns are the id in its own type, class_name, class_value, prob and rank. For a model that predicts numbers they are the id, class_name and prediction (a number, or an array if an output has several values). pred_type is ''prob'' for all classes, or ''response'' for the most probable class of each row (then without rank). mst_key selects the model in a table of madlib_fit_multiple_model; without it the best one predicts. With models of groups, the best model of its group predicts each row, or with mst_key the group''s model of that config.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type integer,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict(
    varchar, varchar, varchar, varchar, varchar, integer, boolean, integer
) IS
'Predicts the rows of a table (one example per row, not packed) with a trained model and writes the predictions to a new table. Its columns are the id in its own type, class_name, class_value, prob and rank. For a model that predicts numbers they are the id, class_name and prediction (a number, or an array if an output has several values). Here pred_type is a number k: the result has the k most probable classes of each row.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type double precision,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict(
    varchar, varchar, varchar, varchar, varchar, double precision, boolean, integer
) IS
'Predicts the rows of a table (one example per row, not packed) with a trained model and writes the predictions to a new table. Its columns are the id in its own type, class_name, class_value, prob and rank. For a model that predicts numbers they are the id, class_name and prediction (a number, or an array if an output has several values). Here pred_type is a probability p, from 0 to below 1: the result has the classes whose probability is greater than p.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict_byom(
    model_arch_table varchar,
    model_id integer,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type varchar DEFAULT 'prob',
    use_gpus boolean DEFAULT FALSE,
    class_values text[] DEFAULT NULL,
    normalizing_const double precision DEFAULT NULL,
    dependent_count integer DEFAULT 1,
    features jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_byom(
    model_arch_table, model_id, (class_values, normalizing_const, dependent_count, features),
    test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict_byom(
    varchar, integer, varchar, varchar, varchar, varchar, varchar, boolean, text[], double precision, integer, jsonb
) IS
'Predicts the rows of a table with your own model, an architecture that was stored with its weights, and writes what madlib_keras_predict writes. class_values names the classes (one list for each output, dependent_count lists in all); without it they are numbered from 0. Without class_values, a model with a single output unit and no sigmoid predicts numbers. If the model was trained on columns, features is the feature_specification in its summary: rows are then prepared like the training rows, and columns are found by name.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict_byom(
    model_arch_table varchar,
    model_id integer,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type integer,
    use_gpus boolean DEFAULT FALSE,
    class_values text[] DEFAULT NULL,
    normalizing_const double precision DEFAULT NULL,
    dependent_count integer DEFAULT 1,
    features jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_byom(
    model_arch_table, model_id, (class_values, normalizing_const, dependent_count, features),
    test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict_byom(
    varchar, integer, varchar, varchar, varchar, varchar, integer, boolean, text[], double precision, integer, jsonb
) IS
'Predicts the rows of a table with your own model, an architecture that was stored with its weights, and writes what madlib_keras_predict writes. class_values names the classes (one list for each output, dependent_count lists in all); without it they are numbered from 0. If the model was trained on columns, features is the feature_specification in its summary: rows are then prepared like the training rows, and columns are found by name. Here pred_type is a number k: the result has the k most probable classes of each row.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict_byom(
    model_arch_table varchar,
    model_id integer,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type double precision,
    use_gpus boolean DEFAULT FALSE,
    class_values text[] DEFAULT NULL,
    normalizing_const double precision DEFAULT NULL,
    dependent_count integer DEFAULT 1,
    features jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_byom(
    model_arch_table, model_id, (class_values, normalizing_const, dependent_count, features),
    test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict_byom(
    varchar, integer, varchar, varchar, varchar, varchar, double precision, boolean, text[], double precision, integer, jsonb
) IS
'Predicts the rows of a table with your own model, an architecture that was stored with its weights, and writes what madlib_keras_predict writes. class_values names the classes (one list for each output, dependent_count lists in all); without it they are numbered from 0. If the model was trained on columns, features is the feature_specification in its summary: rows are then prepared like the training rows, and columns are found by name. Here pred_type is a probability p, from 0 to below 1: the result has the classes whose probability is greater than p.';

CREATE OR REPLACE FUNCTION cerebro.madlib_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type varchar DEFAULT 'prob',
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_predict(
    varchar, varchar, varchar, varchar, varchar, varchar, boolean, integer
) IS
'The same as madlib_keras_predict.';

CREATE OR REPLACE FUNCTION cerebro.madlib_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type integer,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_predict(
    varchar, varchar, varchar, varchar, varchar, integer, boolean, integer
) IS
'The same as madlib_keras_predict.';

CREATE OR REPLACE FUNCTION cerebro.madlib_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type double precision,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_predict(
    varchar, varchar, varchar, varchar, varchar, double precision, boolean, integer
) IS
'The same as madlib_keras_predict.';

CREATE OR REPLACE FUNCTION cerebro.materialize_features(
    packed_table varchar,
    model_arch_table varchar,
    model_id integer,
    layer varchar,
    output_table varchar
) RETURNS bigint
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].features("materialize", packed_table, model_arch_table, model_id, layer, output_table)
$$;
COMMENT ON FUNCTION cerebro.materialize_features(varchar, varchar, integer, varchar, varchar) IS
'Creates a packed table with the outputs of a layer of a net for the rows of another packed table, and returns the number of rows. This layer and all layers before it must be frozen or have no weights, and must draw nothing at random. Each buffer has the place of the buffer that it was made from. You train nets with these layers on the new table as on the other one: a run computes only their other layers, and the models are whole. The packed table can itself hold the features of an earlier layer of the same net.';

CREATE OR REPLACE FUNCTION cerebro.pause(
    run_id bigint
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].ask("pause", run_id)
$$;
COMMENT ON FUNCTION cerebro.pause IS
'Pauses one of your running runs: nothing new begins until cerebro.resume. Visits that have begun are finished.';

-- STABLE, since within one statement a model does not change. PARALLEL UNSAFE, since PL/Python reads through
-- subtransactions, which parallel plans do not allow. model is a regclass so that the server itself finds the table, as
-- any statement of the caller's would.
CREATE OR REPLACE FUNCTION cerebro.predict(
    model regclass,
    mst_key integer,
    features double precision[],
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision
) RETURNS record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 1000
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](True)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_one(model, mst_key, features)
$$;
COMMENT ON FUNCTION cerebro.predict(regclass, integer, double precision[]) IS
'Predicts one row, given as a numeric array, inside any query. The result is the most probable class with its probability, or the prediction of a model for numbers. If mst_key is NULL, the best config answers. The model stays in the session''s memory. Use it in FROM (FROM rows, cerebro.predict(''model'', 1, x)), or as (cerebro.predict(…)).class.';

CREATE OR REPLACE FUNCTION cerebro.predict(
    model regclass,
    mst_key integer,
    features bytea,
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision
) RETURNS record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 1000
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](True)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_one(model, mst_key, features)
$$;
COMMENT ON FUNCTION cerebro.predict(regclass, integer, bytea) IS
'Predicts one row, given as bytes (uint8 images), inside any query. The result is the most probable class with its probability, or the prediction of a model for numbers. If mst_key is NULL, the best config answers. The model stays in the session''s memory. Use it in FROM (FROM rows, cerebro.predict(''model'', 1, x)), or as (cerebro.predict(…)).class.';

-- Without a SET clause the planner sees through it; every name in it is qualified.
CREATE OR REPLACE FUNCTION cerebro.predict(
    model regclass,
    "row" anyelement,
    mst_key integer DEFAULT NULL,
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision,
    OUT probabilities jsonb
) RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE COST 1000 ROWS 1 AS $$
SELECT p.class, p.probability, p.prediction, p.probabilities
FROM cerebro._predict_row($1::pg_catalog.oid, cerebro._json($2)::pg_catalog.text, $3) AS p
$$;
COMMENT ON FUNCTION cerebro.predict(regclass, anyelement, integer) IS
'Predicts a row of a table or query inside any query: FROM customers c, cerebro.predict(''models'', c) p. The columns that the model was trained on are found by their names. Without mst_key the best config answers; with models of groups, the best one of the row''s group. A row of a group without a model gets NULL. The result is the most probable class with its probability and the probabilities of all classes, or the prediction of a model for numbers.';

-- Without a search_path of its own, since the query is the caller's; every name in it is qualified. Batches are made by
-- sorting and not by hashing, so that one of them at a time is in memory.
CREATE OR REPLACE FUNCTION cerebro.predict_query(
    model regclass,
    query text,
    row_type anyelement,
    mst_key integer DEFAULT NULL
) RETURNS TABLE (
    source anyelement,
    class text,
    probability double precision,
    prediction double precision
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE COST 100000
SET enable_hashagg = off AS $$
BEGIN
    RETURN QUERY EXECUTE cerebro._predict_statement($1, $2, pg_catalog.pg_typeof($3)::pg_catalog.oid, $4);
END
$$;
COMMENT ON FUNCTION cerebro.predict_query(regclass, text, anyelement, integer) IS
'Predicts all rows of a query, many at a time, and returns each row with its prediction: SELECT (p.source).id, p.class FROM cerebro.predict_query(''models'', ''SELECT * FROM customers'', NULL::customers) AS p. The third argument gives the row type of source. The columns of source are filled, and the columns of the model found, by their names. Without mst_key the best config answers.';

CREATE OR REPLACE FUNCTION cerebro.prepare_train(
    source_table varchar,
    target text,
    name text DEFAULT NULL,
    budget interval DEFAULT '1 minute',
    options jsonb DEFAULT NULL
) RETURNS jsonb
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].prepare_train(source_table, target, name, budget, options)
$$;
COMMENT ON FUNCTION cerebro.prepare_train(varchar, text, text, interval, jsonb) IS
'Does what cerebro.train does before its search: it packs the rows and makes the nets. It returns the arguments of madlib_automl for the search. When the tables are committed, the search can train on all segments at once and in the background. The arguments are those of cerebro.train.';

CREATE OR REPLACE FUNCTION cerebro.read_params(
    compile_params varchar,
    fit_params varchar
) RETURNS json
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].read_params(compile_params, fit_params)
$$;
COMMENT ON FUNCTION cerebro.read_params IS
'Reads the compile and fit parameters of a config from their text and returns them as JSON, with every name in Keras'' spelling. A call is an object with name and arguments.';

CREATE OR REPLACE FUNCTION cerebro.refresh_features(
    features_table varchar
) RETURNS bigint
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].features("refresh", features_table)
$$;
COMMENT ON FUNCTION cerebro.refresh_features(varchar) IS
'Updates a table of features after cerebro.append_rows on the packed table that it was made from, and returns the number of rows that were added. Only the new rows go through the net. It fails if the net''s weights have changed, or if the packed table was packed again.';

CREATE OR REPLACE FUNCTION cerebro.register_function(
    name text,
    source text,
    kind text,
    description text DEFAULT NULL,
    higher_is_better boolean DEFAULT NULL
) RETURNS integer
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].function("register_function", *args)
$$;
COMMENT ON FUNCTION cerebro.register_function IS
'Stores Python source that defines a loss, a metric or a layer (the kind) with this name, and returns its version. Configs and architectures may then name it. Only a superuser may call it.';

CREATE OR REPLACE FUNCTION cerebro.resume(
    run_id bigint
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].resume(run_id)
$$;
COMMENT ON FUNCTION cerebro.resume IS
'Continues one of your runs that was interrupted, from its last committed visits. It leaves the same tables as an undisturbed run.';

CREATE OR REPLACE FUNCTION cerebro.resume_config(
    run_id bigint,
    mst_key integer
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].ask("resume_config", run_id, mst_key)
$$;
COMMENT ON FUNCTION cerebro.resume_config IS
'Continues a config that was stopped, in one of your running runs.';

CREATE OR REPLACE FUNCTION cerebro.revoke_function(
    name text,
    role name
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].function("revoke_function", name, role)
$$;
COMMENT ON FUNCTION cerebro.revoke_function IS
'Takes back what grant_function gave to a role. Only a superuser may call it.';

CREATE OR REPLACE FUNCTION cerebro.segments_ready()
RETURNS TABLE (
    segment integer, host text, cerebro text, python text, engines jsonb, gpus text[], ok boolean, missing text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    query text := 'SELECT -1 AS content, cerebro._host_facts()::jsonb AS facts';
BEGIN
    IF current_setting('gp_role', TRUE) = 'execute' THEN
        RAISE EXCEPTION 'cerebro: a query that reads or fills tables cannot call this function'
            USING ERRCODE = 'feature_not_supported',
            DETAIL = 'It would look from a segment, and see none of the others.',
            HINT = 'Call it in a statement of its own. To keep what it gives, see docs/greenplum.md.';
    END IF;
    PERFORM cerebro._reach_segments();
    IF version() LIKE '%Greenplum%' THEN
        query := query || ' UNION ALL SELECT s.content, s.facts FROM (SELECT gp_segment_id AS content,'
            ' cerebro._host_facts()::jsonb AS facts FROM gp_dist_random(''pg_catalog.gp_id'')) AS s';
    END IF;
    RETURN QUERY EXECUTE 'SELECT f.content, f.facts ->> ''host'', f.facts ->> ''cerebro'', f.facts ->> ''python'','
        ' f.facts -> ''engines'', ARRAY(SELECT jsonb_array_elements_text(f.facts -> ''gpus'')),'
        ' f.facts ->> ''missing'' IS NULL, f.facts ->> ''missing'' FROM (' || query || ') AS f ORDER BY 1';
END
$$;
COMMENT ON FUNCTION cerebro.segments_ready() IS
'Shows, for the server (-1) and on Greenplum for each segment, its host, the versions of the extension''s Python code, of Python and of the engines, its GPUs, and whether it is ready or what is missing there.';

CREATE OR REPLACE FUNCTION cerebro.set_epochs(
    run_id bigint,
    mst_key integer,
    epochs integer
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].ask("set_epochs", run_id, mst_key, epochs)
$$;
COMMENT ON FUNCTION cerebro.set_epochs IS
'Sets the total number of epochs that a config of one of your running runs trains.';

CREATE OR REPLACE FUNCTION cerebro.show_net(
    keras_model_arch_table varchar,
    model_id integer
) RETURNS TABLE (
    layer text,
    class text,
    shape integer[],
    parameters bigint,
    inputs text[]
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].show_net(keras_model_arch_table, model_id)
$$;
COMMENT ON FUNCTION cerebro.show_net(varchar, integer) IS
'Shows a net layer by layer: name, class, shape of the output for one row, number of parameters, and (in a functional model) the layers whose outputs it takes.';

CREATE OR REPLACE FUNCTION cerebro.stop(
    run_id bigint,
    force boolean DEFAULT FALSE
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].ask("stop", run_id, force)
$$;
COMMENT ON FUNCTION cerebro.stop IS
'Ends one of your running runs early and in good order: its result tables have the models that its configs have reached. With force it ends the sessions of the run at once, even while they wait. The run is then interrupted, and can be resumed.';

CREATE OR REPLACE FUNCTION cerebro.stop_config(
    run_id bigint,
    mst_key integer
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].ask("stop_config", run_id, mst_key)
$$;
COMMENT ON FUNCTION cerebro.stop_config IS
'Stops a config of one of your running runs: it gets no more visits. Its model is the one after its last whole epoch.';

CREATE OR REPLACE FUNCTION cerebro.train(
    source_table varchar,
    target text,
    name text DEFAULT NULL,
    budget interval DEFAULT '1 minute',
    options jsonb DEFAULT NULL
) RETURNS TABLE (
    mst_key integer,
    net text,
    parameters text,
    metric text,
    value double precision,
    loss double precision,
    best boolean
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].train(source_table, target, name, budget, options)
$$;
COMMENT ON FUNCTION cerebro.train(varchar, text, text, interval, jsonb) IS
'Trains nets on the rows of a table in one call: it looks at the columns, leaves keys out, holds rows out, packs, chooses nets that suit the inputs, and searches with ASHA within the budget. It creates the usual tables (name, name_info, name_summary, name_packed, name_packed_validation, name_nets, name_best, name_ensemble), and NOTICEs show the statements that would do the same by hand. It returns the configs, the best first, each with the deciding metric and its value. After it, cerebro.predict(name, row) works. Options: columns, exclude, validation, weight, segments, task (as in training_preprocessor_dl), nets (starting points or lines of layers), configs, epochs, backend, seed, single (without an ensemble).';

CREATE OR REPLACE FUNCTION cerebro.train_test_split(
    source_table text,
    output_table text,
    train_proportion double precision,
    test_proportion double precision DEFAULT NULL,
    grouping_cols text DEFAULT NULL,
    target_cols text DEFAULT NULL,
    with_replacement boolean DEFAULT FALSE,
    separate_output_tables boolean DEFAULT FALSE,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].prepare(
    "split", source_table, output_table, train_proportion, test_proportion, grouping_cols, target_cols, with_replacement,
    separate_output_tables, options)
$$;
COMMENT ON FUNCTION cerebro.train_test_split IS
'Splits the rows of a table at random into training rows and test rows. It creates one table with a column split (1 for training, 0 for test), or two tables, <output_table>_train and <output_table>_test. With grouping_cols each group is split in these proportions. Options: seed; the same rows with the same seed are split in the same way.';

CREATE OR REPLACE FUNCTION cerebro.training_preprocessor_dl(
    source_table varchar,
    output_table varchar,
    dependent_varname varchar,
    independent_varname varchar,
    buffer_size integer DEFAULT NULL,
    normalizing_const real DEFAULT 1.0,
    num_classes integer[] DEFAULT NULL,
    distribution_rules text DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].prepare(
    "training", source_table, output_table, dependent_varname, independent_varname, buffer_size, normalizing_const,
    num_classes, distribution_rules, options)
$$;
COMMENT ON FUNCTION cerebro.training_preprocessor_dl(
    varchar, varchar, varchar, varchar, integer, real, integer[], text, jsonb
) IS
'Packs a table for training. It shuffles the rows by a seed, deals them evenly to segments and stores them in buffers of arrays. Features are divided by normalizing_const, and labels are one-hot (or numbers for regression). Options: segments, seed, shape, task (classification or regression), memory_mb, weight (the column with the weight of each row), validation (the rows to pack separately as <output_table>_validation: a share, or an object with by, after and on, or stratify), folds (their number, or an object with count and by or stratify, or with column: packs the rows in folds, for cross_validate), group_by (one or several columns: each config is trained on each group of rows separately; <output_table>_groups lists the groups), and columns ("auto", or what each column becomes: text, dates, categories, NULLs and images as they are) with exclude. With columns, independent_varname may be ''*''.';

CREATE OR REPLACE FUNCTION cerebro.unregister_function(
    name text
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].function("unregister_function", name)
$$;
COMMENT ON FUNCTION cerebro.unregister_function IS
'Ends all versions of a registered function and the grants on it. Runs that use it cannot be resumed until the same source is registered again. Only a superuser may call it.';

CREATE OR REPLACE FUNCTION cerebro.update_custom_function_table(
    object_table varchar
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].function("update_custom_function_table", object_table)
$$;
COMMENT ON FUNCTION cerebro.update_custom_function_table IS
'Checks an object table. An object table never becomes outdated, since nothing in it is ever unpickled.';

CREATE OR REPLACE FUNCTION cerebro.validation_preprocessor_dl(
    source_table varchar,
    output_table varchar,
    dependent_varname varchar,
    independent_varname varchar,
    training_preprocessor_table varchar,
    buffer_size integer DEFAULT NULL,
    distribution_rules text DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].prepare(
    "validation", source_table, output_table, dependent_varname, independent_varname, training_preprocessor_table, buffer_size,
    distribution_rules, options)
$$;
COMMENT ON FUNCTION cerebro.validation_preprocessor_dl(
    varchar, varchar, varchar, varchar, varchar, integer, text, jsonb
) IS
'Packs a table for validation in the same way as its training table: with the same normalizing constant, class values, segments and seed. Options: memory_mb.';

CREATE OR REPLACE FUNCTION cerebro.version() RETURNS text
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].version()
$$;
COMMENT ON FUNCTION cerebro.version() IS
'Returns the versions of everything that can affect a result: the extension, the server, Python, Keras, the engines that are installed, and the other packages. It loads none of them.';

CREATE OR REPLACE FUNCTION cerebro.wait(
    run_id bigint,
    timeout interval DEFAULT NULL
) RETURNS text
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].wait(run_id, timeout)
$$;
COMMENT ON FUNCTION cerebro.wait IS
'Waits until a run is over or the time is up, and returns its status: finished, failed or interrupted, or running or paused if the time is up.';

CREATE OR REPLACE FUNCTION cerebro.windows(
    source_table varchar,
    output_view varchar,
    partition_by varchar,
    order_by varchar,
    columns varchar,
    length integer,
    stride integer DEFAULT NULL,
    label varchar DEFAULT NULL,
    label_from text DEFAULT 'last',
    gap interval DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "cdbcomponent_activeQEsExist") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"](False)
        if why_not:
            raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **why_not})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].prepare(
    "windows", source_table, output_view, partition_by, order_by, columns, length, stride, label, label_from, gap)
$$;
COMMENT ON FUNCTION cerebro.windows(
    varchar, varchar, varchar, varchar, varchar, integer, integer, varchar, text, interval
) IS
'Creates a view of windows over time. Each row has an array of length consecutive readings of the listed columns, from one partition. No window crosses a partition, or a gap between two readings that is longer than gap. Readings whose order_by is NULL are left out. A window begins every stride readings (by default, every length readings). label_from chooses the label of a window: that of its last reading (last), the most frequent of its readings (majority), or that of the reading after it (next). The view has the columns partition_by, starts, ends, x and label.';

CREATE OR REPLACE VIEW cerebro._visible_run WITH (security_barrier) AS
SELECT r.*
FROM cerebro._run AS r
WHERE r.kind <> 'evaluation'
    AND (pg_catalog.pg_has_role(r.owner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE'));
COMMENT ON VIEW cerebro._visible_run IS 'Internal: the runs that the current role may know of, its own and for monitors all.';

CREATE OR REPLACE VIEW cerebro._decided WITH (security_barrier) AS
SELECT d.run_id, d.number::bigint AS number, d.decision, d.mst_key, d.epochs, FALSE AS pending
FROM cerebro._decision AS d
WHERE d.decision NOT IN ('measured', 'refused')
UNION ALL
SELECT q.run_id, 2147483647 + q.request_id AS number, q.decision, q.mst_key, q.epochs, TRUE AS pending
FROM cerebro._request AS q
WHERE NOT EXISTS (SELECT FROM cerebro._decision AS d WHERE d.request_id = q.request_id);
COMMENT ON VIEW cerebro._decided IS 'Internal: what was decided in each run and, after it, what is asked for.';

CREATE OR REPLACE VIEW cerebro._standing WITH (security_barrier) AS
SELECT
    c.run_id,
    c.mst_key,
    c.model_id,
    c.compile_params,
    c.fit_params,
    c.source_key,
    c.first_step,
    COALESCE(d.epochs, CASE WHEN r.search IS NULL OR c.pending THEN r.epochs ELSE 0 END) AS epochs,
    COALESCE(d.stopped, FALSE) AS stopped,
    COALESCE(d.deleted, FALSE) AS deleted,
    d.asked,
    c.config_key,
    c.fold,
    c.group_id
FROM (
    SELECT x.run_id, x.mst_key, x.model_id, x.compile_params, x.fit_params, x.source_key, COALESCE(x.source_step, 0) AS first_step, x.config_key, x.fold, x.group_id, FALSE AS pending
    FROM cerebro._config AS x
    UNION ALL
    SELECT q.run_id, q.mst_key, q.model_id, q.compile_params, q.fit_params, q.source_key, 0 AS first_step, NULL::integer AS config_key, NULL::integer AS fold, NULL::integer AS group_id, TRUE AS pending
    FROM cerebro._request AS q
    WHERE q.model_id IS NOT NULL AND NOT EXISTS (SELECT FROM cerebro._decision AS d WHERE d.request_id = q.request_id)
) AS c
JOIN cerebro._run AS r USING (run_id)
-- All at once: a look for each config of a run of ten thousand groups is slow, and seems so costly that the server compiles the query.
LEFT JOIN (
    SELECT
        x.run_id,
        x.mst_key,
        (pg_catalog.array_agg(x.epochs ORDER BY x.number DESC) FILTER (WHERE x.epochs IS NOT NULL))[1] AS epochs,
        (pg_catalog.array_agg(x.decision = 'stop' ORDER BY x.number DESC) FILTER (WHERE x.decision IN ('stop', 'resume')))[1] AS stopped,
        pg_catalog.bool_or(x.decision = 'delete') AS deleted,
        (pg_catalog.array_agg(x.decision ORDER BY x.number DESC) FILTER (WHERE x.pending))[1] AS asked
    FROM cerebro._decided AS x
    WHERE x.mst_key IS NOT NULL
    GROUP BY x.run_id, x.mst_key
) AS d ON d.run_id = c.run_id AND d.mst_key = c.mst_key;
COMMENT ON VIEW cerebro._standing IS 'Internal: the configs of each run with what was decided about them, those that are asked for included.';

CREATE OR REPLACE VIEW cerebro.runs WITH (security_barrier) AS
SELECT
    r.run_id,
    pg_catalog.pg_get_userbyid(r.owner)::text AS owner,
    -- A run whose driving session is gone is not running, whatever its last row says.
    CASE
        WHEN e.event = 'running' AND NOT l.goes_on THEN 'interrupted'
        WHEN e.event = 'running' AND p.paused THEN 'paused'
        ELSE e.event
    END AS status,
    r.name,
    r.description,
    r.source_table,
    r.validation_table,
    r.model_table,
    COALESCE(c.configs, 0) AS configs,
    COALESCE(f.failed_configs, 0) AS failed_configs,
    r.epochs,
    r.segments,
    COALESCE(v.visits_done, 0) AS visits_done,
    COALESCE(c.epochs * r.segments - c.first_steps, 0)::bigint AS visits_total,
    r.seed,
    r.topology,
    r.started_at,
    CASE WHEN l.goes_on THEN NULL ELSE GREATEST(e.at, v.ended_at) END AS ended_at,
    pg_catalog.date_part('epoch',
        CASE WHEN l.goes_on
            THEN pg_catalog.clock_timestamp() ELSE GREATEST(e.at, v.ended_at) END - r.started_at) AS seconds,
    e.detail,
    r.search::pg_catalog.json ->> 'method' AS search,
    (r.packed_versions::pg_catalog.json -> r.source_table ->> 'version')::integer AS packed_version,
    o.groups,
    c.folds
-- All is looked up for all runs at once. A subquery that begins anew for each run brings all that it is joined with to where
-- the whole query runs, and there early versions of Greenplum 7 forget in which order rows come: a join with what is sorted
-- then loses rows. What is visible is decided in the scans that have the data, as in the view of visits.
FROM cerebro._visible_run AS r
JOIN (
    SELECT
        x.run_id,
        pg_catalog.max(x.at) AS at,
        (pg_catalog.array_agg(x.event ORDER BY x.at DESC))[1] AS event,
        (pg_catalog.array_agg(x.detail ORDER BY x.at DESC))[1] AS detail
    FROM cerebro._run_event AS x
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS e ON e.run_id = r.run_id
LEFT JOIN (
    SELECT
        x.run_id,
        pg_catalog.count(*) AS configs,
        pg_catalog.sum(x.epochs) AS epochs,
        pg_catalog.sum(x.first_step) AS first_steps,
        pg_catalog.max(x.fold) AS folds
    FROM cerebro._standing AS x
    WHERE NOT x.deleted AND x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS c ON c.run_id = r.run_id
LEFT JOIN (
    SELECT
        x.run_id,
        (pg_catalog.array_agg(x.decision = 'pause' ORDER BY x.number DESC))[1] AS paused
    FROM cerebro._decided AS x
    WHERE x.mst_key IS NULL AND x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS p ON p.run_id = r.run_id
LEFT JOIN (
    SELECT
        x.run_id,
        pg_catalog.count(*) AS failed_configs
    FROM cerebro._failure AS x
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS f ON f.run_id = r.run_id
LEFT JOIN (
    SELECT
        x.run_id,
        pg_catalog.count(*) AS groups
    FROM cerebro._group AS x
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS o ON o.run_id = r.run_id
LEFT JOIN (
    -- The last visit of a config tells how many there are. Below zero are those whose states wait to be averaged.
    SELECT
        x.run_id,
        pg_catalog.sum((
            SELECT z.step - COALESCE(x.source_step, 0) FROM cerebro._visit AS z
            WHERE z.run_id = x.run_id AND z.mst_key = x.mst_key AND z.step > 0 ORDER BY z.step DESC LIMIT 1
        ))::bigint AS visits_done,
        pg_catalog.max((
            SELECT z.ended_at FROM cerebro._visit AS z
            WHERE z.run_id = x.run_id AND z.mst_key = x.mst_key AND z.step > 0 ORDER BY z.step DESC LIMIT 1
        )) AS ended_at
    FROM cerebro._config AS x
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS v ON v.run_id = r.run_id
LEFT JOIN (
    SELECT d.run_id, (d.run_id & 2147483647) || ' ' || d.lock || ' ' || d.pid AS held FROM cerebro._driver AS d
) AS d ON d.run_id = r.run_id
CROSS JOIN (
    -- The advisory locks that the sessions behind runs hold: store/drivers.py. Any role may take such a lock; behind a run
    -- is only the session that its row of _driver names, a superuser's unless the run is inline. Looked up once, before all else: Greenplum asks
    -- its segments for their locks, which it cannot do while they are at work on the rest of the query. There, too, an
    -- array of no rows is NULL.
    -- Locks are seen as they are, rows as they were when the query began: a run may have ended in between, and then the
    -- number that the last one to end has left is that of a transaction which the query does not see.
    -- A standby knows no locks of its primary's: there a run goes on until its rows say otherwise.
    SELECT
        COALESCE(ARRAY(
            SELECT x.classid || ' ' || x.objid || ' ' || x.pid || ' ' || o.rolsuper
            FROM pg_catalog.pg_locks AS x
            JOIN pg_catalog.pg_stat_activity AS a USING (pid)
            JOIN pg_catalog.pg_roles AS o ON o.oid = a.usesysid
            WHERE x.locktype = 'advisory' AND x.objsubid = 2 AND x.granted AND x.objid::bigint >> 16 = 3300
                AND x.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
        ), '{}') AS held,
        pg_catalog.pg_is_in_recovery()
        OR NOT pg_catalog.txid_visible_in_snapshot(
            (SELECT x.last_value FROM cerebro._last_ending AS x), pg_catalog.txid_current_snapshot()) AS unknown
    OFFSET 0
) AS k
CROSS JOIN LATERAL (
    SELECT e.event = 'running' AND (
        ARRAY[d.held || ' true', CASE WHEN r.topology = 'inline' THEN d.held || ' false' END] && k.held OR k.unknown
    ) AS goes_on
) AS l;
COMMENT ON VIEW cerebro.runs IS 'Your runs, one row each, both while they are under way and afterwards.';
COMMENT ON COLUMN cerebro.runs.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.runs.owner IS 'Role that made the call';
COMMENT ON COLUMN cerebro.runs.status IS 'running, paused, finished, failed (also if every config failed), or interrupted (cancelled, or its session is gone)';
COMMENT ON COLUMN cerebro.runs.name IS 'Name given in the call';
COMMENT ON COLUMN cerebro.runs.description IS 'Description given in the call';
COMMENT ON COLUMN cerebro.runs.source_table IS 'Packed table with the training rows';
COMMENT ON COLUMN cerebro.runs.validation_table IS 'Packed table with the validation rows';
COMMENT ON COLUMN cerebro.runs.model_table IS 'Table that gets the models';
COMMENT ON COLUMN cerebro.runs.configs IS 'Number of configs, less those that were deleted';
COMMENT ON COLUMN cerebro.runs.failed_configs IS 'Number of configs that failed while they trained';
COMMENT ON COLUMN cerebro.runs.epochs IS 'Number of epochs asked for';
COMMENT ON COLUMN cerebro.runs.segments IS 'Number of segments';
COMMENT ON COLUMN cerebro.runs.visits_done IS 'Visits that are committed';
COMMENT ON COLUMN cerebro.runs.visits_total IS 'Visits of the whole run as far as they are decided: epochs x segments for each config';
COMMENT ON COLUMN cerebro.runs.seed IS 'Seed that, with the rows and the number of segments, decides every bit of the result';
COMMENT ON COLUMN cerebro.runs.topology IS 'local (segment sessions), greenplum (the same, on the segments of a cluster) or inline (the caller''s session alone)';
COMMENT ON COLUMN cerebro.runs.started_at IS 'When the run began';
COMMENT ON COLUMN cerebro.runs.ended_at IS 'When the run ended; NULL while it is under way';
COMMENT ON COLUMN cerebro.runs.seconds IS 'How long the run took, or has taken so far';
COMMENT ON COLUMN cerebro.runs.detail IS 'Why the run failed or was interrupted, or by how much it exceeded its budget';
COMMENT ON COLUMN cerebro.runs.search IS 'Method that decides which configs train further: that of a search, or early_stopping; NULL if every config trains for all its epochs';
COMMENT ON COLUMN cerebro.runs.packed_version IS 'Version of the packed table that the run trains on: 1, and one more for each call of append_rows; NULL in runs of older releases';
COMMENT ON COLUMN cerebro.runs.groups IS 'In a run of groups, the number of groups, including those that are left out; cerebro.groups lists them';
COMMENT ON COLUMN cerebro.runs.folds IS 'In a cross-validated run, the number of folds';

CREATE OR REPLACE VIEW cerebro.visits WITH (security_barrier) AS
SELECT
    v.run_id,
    v.mst_key,
    pg_catalog.abs(v.step) AS step,
    v.epoch,
    v.segment,
    v."rows",
    v.loss,
    v.state_bytes,
    v.read_seconds,
    v.train_seconds,
    v.write_seconds,
    v.pid,
    v.started_at,
    v.ended_at,
    v.cpu_seconds,
    v.memory_bytes
-- What is visible is decided in the scan that has the data: a leakproof condition of a user's may go below a join, and
-- EXPLAIN ANALYZE tells how many rows are found there.
FROM cerebro._visit AS v
-- What has averaged the states of all segments has made no visit.
WHERE v.segment >= 0 AND v.run_id = ANY (ARRAY(SELECT r.run_id FROM cerebro._visible_run AS r));
COMMENT ON VIEW cerebro.visits IS 'The timeline of your runs: when each config trained on which segment.';
COMMENT ON COLUMN cerebro.visits.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.visits.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.visits.step IS 'Number of the visit within its config, counted from 1';
COMMENT ON COLUMN cerebro.visits.epoch IS 'Epoch, counted from 1';
COMMENT ON COLUMN cerebro.visits.segment IS 'Segment, counted from 0';
COMMENT ON COLUMN cerebro.visits."rows" IS 'Rows of the segment''s partition';
COMMENT ON COLUMN cerebro.visits.loss IS 'Loss over the visit, as Keras reports it during training';
COMMENT ON COLUMN cerebro.visits.state_bytes IS 'Size of the state that the visit wrote';
COMMENT ON COLUMN cerebro.visits.read_seconds IS 'Time until rows and state were in memory and the model compiled';
COMMENT ON COLUMN cerebro.visits.train_seconds IS 'Time of the training itself';
COMMENT ON COLUMN cerebro.visits.write_seconds IS 'Time to write the new state';
COMMENT ON COLUMN cerebro.visits.pid IS 'Process of the segment session';
COMMENT ON COLUMN cerebro.visits.started_at IS 'When the visit began';
COMMENT ON COLUMN cerebro.visits.ended_at IS 'When it was about to commit';
COMMENT ON COLUMN cerebro.visits.cpu_seconds IS 'Processor time of the segment session during the visit, in all its threads; NULL in runs of older versions';
COMMENT ON COLUMN cerebro.visits.memory_bytes IS 'Memory of the segment session at the end of the visit, including shared memory; NULL in runs of older versions';

CREATE OR REPLACE VIEW cerebro.metrics WITH (security_barrier) AS
SELECT
    m.run_id,
    m.mst_key,
    m.epoch,
    m.dataset,
    m.metric,
    m.value,
    m.higher_is_better,
    m.at
-- What is visible is decided in the scan that has the data: a leakproof condition of a user's may go below a join, and
-- EXPLAIN ANALYZE tells how many rows are found there.
FROM cerebro._metric AS m
WHERE m.run_id = ANY (ARRAY(SELECT r.run_id FROM cerebro._visible_run AS r));
COMMENT ON VIEW cerebro.metrics IS 'The metrics of the configs of your runs after each epoch that was evaluated.';
COMMENT ON COLUMN cerebro.metrics.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.metrics.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.metrics.epoch IS 'Epoch after which it was measured';
COMMENT ON COLUMN cerebro.metrics.dataset IS 'training or validation';
COMMENT ON COLUMN cerebro.metrics.metric IS 'Name of the metric as Keras gives it; loss is always there';
COMMENT ON COLUMN cerebro.metrics.value IS 'Value over all rows of all segments';
COMMENT ON COLUMN cerebro.metrics.higher_is_better IS 'Direction of the metric';
COMMENT ON COLUMN cerebro.metrics.at IS 'When it was measured';

CREATE OR REPLACE VIEW cerebro.leaderboard WITH (security_barrier) AS
WITH going AS (
    -- Configs that still train in a run that keeps them side by side: they are ranked at the last epoch that all
    -- of them have been measured at. The same is in planner/plan.py.
    SELECT
        c.run_id,
        c.mst_key,
        COALESCE(pg_catalog.max(m.epoch), 0) AS measured
    FROM cerebro._visible_run AS x
    JOIN cerebro._standing AS c USING (run_id)
    LEFT JOIN cerebro._failure AS f ON f.run_id = c.run_id AND f.mst_key = c.mst_key
    LEFT JOIN cerebro._metric AS m ON m.run_id = c.run_id AND m.mst_key = c.mst_key
    WHERE COALESCE((x.limits::json ->> 'even')::boolean, FALSE)
        AND f.mst_key IS NULL AND NOT c.stopped AND NOT c.deleted
    GROUP BY c.run_id, c.mst_key, c.epochs
    HAVING COALESCE(pg_catalog.max(m.epoch), 0) < c.epochs
),

visible AS (
    SELECT
        x.run_id,
        COALESCE((x.limits::json ->> 'restore_best')::boolean, FALSE) AS restores_best,
        COALESCE((x.search::json ->> 'by_loss')::boolean, FALSE) AS by_loss,
        e.epoch AS reached
    FROM cerebro._visible_run AS x
    LEFT JOIN (
        SELECT
            g.run_id,
            pg_catalog.min(g.measured) AS epoch
        FROM going AS g GROUP BY g.run_id
    ) AS e USING (run_id)
),

history AS (
    -- A filter on one run reaches it: each of these is named once.
    -- After each epoch the metric that decides: the first that is no loss, else the loss. Grouped as the table's key is.
    SELECT
        m.run_id,
        m.mst_key,
        m.epoch,
        m.dataset,
        (pg_catalog.array_agg(m.metric ORDER BY m.metric = 'loss' OR pg_catalog.right(m.metric, 5) = '_loss', m."position"))[1] AS metric,
        (pg_catalog.array_agg(m.value ORDER BY m.metric = 'loss' OR pg_catalog.right(m.metric, 5) = '_loss', m."position"))[1] AS value,
        (pg_catalog.array_agg(m.higher_is_better ORDER BY m.metric = 'loss' OR pg_catalog.right(m.metric, 5) = '_loss', m."position"))[1] AS higher_is_better,
        pg_catalog.max(m.value) FILTER (WHERE m.metric = 'loss') AS loss
    FROM cerebro._metric AS m
    GROUP BY m.run_id, m.mst_key, m.epoch, m.dataset
),

deciding AS (
    SELECT
        h.*,
        CASE
            -- A config whose loss is no number has learned nothing, whatever its metric says.
            WHEN h.value IN ('NaN', 'Infinity', '-Infinity') OR h.loss IN ('NaN', 'Infinity', '-Infinity') THEN NULL
            WHEN h.higher_is_better THEN -h.value
            ELSE h.value
        END AS badness,
        -- The validation rows decide where there are any.
        pg_catalog.bool_or(h.dataset = 'validation') OVER (PARTITION BY h.run_id, h.mst_key) AS validated
    FROM history AS h
),

measured AS (
    -- As epoch, value, loss and badness, the first of each counts.
    -- Delivered is the epoch whose state is the config's result: the last, or with restore_best the one that was best
    -- by what the run decides by. The same is in executor/report.py.
    SELECT
        h.run_id,
        h.mst_key,
        pg_catalog.min(h.dataset) AS dataset,
        pg_catalog.min(h.metric) AS metric,
        pg_catalog.array_agg(
            ARRAY[h.epoch, h.value, h.loss, h.badness]
            ORDER BY k.kept_by, CASE WHEN k.kept_by IS NULL THEN -h.epoch ELSE h.epoch END
        ) FILTER (WHERE h.epoch <= COALESCE(x.reached, h.epoch)) AS delivered,
        pg_catalog.array_agg(ARRAY[h.epoch, h.value] ORDER BY h.badness, h.epoch) AS best,
        pg_catalog.array_agg(ARRAY[h.epoch, h.value] ORDER BY h.epoch DESC) AS newest
    FROM deciding AS h
    JOIN visible AS x USING (run_id)
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN NOT x.restores_best THEN NULL
            WHEN NOT x.by_loss THEN h.badness
            WHEN h.loss NOT IN ('NaN', 'Infinity', '-Infinity') THEN h.loss
        END AS kept_by
    ) AS k
    WHERE h.dataset = CASE WHEN h.validated THEN 'validation' ELSE 'training' END
    GROUP BY h.run_id, h.mst_key
),

configs AS (
    -- FULL, though each that was measured is there: such a join is never made by going over all of the one side for each
    -- row of the other, which takes long where the server expects few rows and a run has ten thousand groups.
    SELECT
        run_id,
        mst_key,
        c.model_id,
        c.compile_params,
        c.fit_params,
        c.backend,
        c.config_key,
        c.fold,
        c.group_id,
        m.dataset,
        m.metric,
        m.delivered[1][1]::integer AS epoch,
        m.delivered[1][2] AS value,
        m.delivered[1][3] AS loss,
        m.delivered[1][4] AS badness,
        m.best[1][1]::integer AS best_epoch,
        m.best[1][2] AS best_value,
        m.newest[1][1]::integer AS newest_epoch,
        m.newest[1][2] AS newest_value
    FROM cerebro._config AS c
    FULL JOIN measured AS m USING (run_id, mst_key)
),

candidates AS (
    -- One for all folds of a config, which has a result when it has been measured on all of them.
    SELECT
        c.run_id,
        CASE WHEN c.fold IS NULL THEN c.mst_key ELSE c.config_key END AS mst_key,
        pg_catalog.min(COALESCE(c.config_key, c.mst_key)) AS shown_key,
        pg_catalog.min(c.group_id) AS group_id,
        pg_catalog.count(c.fold) AS folds,
        pg_catalog.min(c.model_id) AS model_id,
        pg_catalog.min(c.compile_params) AS compile_params,
        pg_catalog.min(c.fit_params) AS fit_params,
        pg_catalog.min(c.backend) AS backend,
        pg_catalog.min(COALESCE('without fold ' || c.fold || ': ', '') || f.reason) AS reason,
        pg_catalog.bool_and(c.epoch IS NOT NULL) AS is_measured,
        pg_catalog.min(c.dataset) AS dataset,
        pg_catalog.min(c.metric) AS metric,
        pg_catalog.avg(c.value) AS value,
        pg_catalog.avg(c.loss) AS loss,
        CASE WHEN pg_catalog.count(c.badness) = pg_catalog.count(*) THEN pg_catalog.avg(c.badness) END AS badness,
        pg_catalog.min(c.epoch) AS epoch,
        pg_catalog.stddev_samp(c.value) AS deviation,
        pg_catalog.string_agg(c.value::text, ', ' ORDER BY c.fold) FILTER (WHERE c.fold IS NOT NULL) AS fold_values,
        pg_catalog.min(c.best_epoch) FILTER (WHERE c.fold IS NULL) AS best_epoch,
        pg_catalog.min(c.best_value) FILTER (WHERE c.fold IS NULL) AS best_value,
        pg_catalog.min(c.newest_epoch) FILTER (WHERE c.fold IS NULL) AS newest_epoch,
        pg_catalog.min(c.newest_value) FILTER (WHERE c.fold IS NULL) AS newest_value
    FROM configs AS c
    LEFT JOIN cerebro._failure AS f ON f.run_id = c.run_id AND f.mst_key = c.mst_key
    -- The final model of a cross-validated config is not ranked.
    WHERE c.config_key IS NULL OR c.group_id IS NOT NULL OR c.fold IS NOT NULL
    GROUP BY c.run_id, CASE WHEN c.fold IS NULL THEN c.mst_key ELSE c.config_key END
)

SELECT
    r.run_id,
    CASE WHEN k.counts THEN pg_catalog.rank() OVER (
        PARTITION BY r.run_id, c.group_id ORDER BY k.counts DESC, c.badness, c.loss, c.shown_key
    ) END AS rank,
    c.shown_key AS mst_key,
    c.model_id,
    CASE WHEN c.is_measured THEN c.dataset END AS dataset,
    CASE WHEN c.is_measured THEN c.metric END AS metric,
    CASE WHEN c.is_measured THEN c.value END AS value,
    CASE WHEN c.is_measured THEN c.loss END AS loss,
    CASE WHEN c.is_measured THEN c.epoch END AS epoch,
    c.best_value,
    c.best_epoch,
    c.compile_params,
    c.fit_params,
    c.reason AS failure,
    c.backend,
    c.newest_value,
    c.newest_epoch,
    CASE WHEN c.is_measured THEN c.deviation END AS deviation,
    CASE WHEN c.is_measured THEN c.fold_values END AS fold_values,
    g.key AS group_key,
    CASE WHEN c.folds = 0 THEN c.mst_key END AS unit_key
FROM cerebro._visible_run AS r
JOIN candidates AS c USING (run_id)
LEFT JOIN cerebro._group AS g ON g.run_id = c.run_id AND g.group_id = c.group_id
LEFT JOIN (
    SELECT DISTINCT
        x.run_id,
        x.mst_key
    FROM cerebro._decision AS x
    WHERE x.decision = 'delete' AND x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
) AS gone ON gone.run_id = c.run_id AND gone.mst_key = c.mst_key
CROSS JOIN LATERAL (
    SELECT c.reason IS NULL AND c.is_measured AND gone.mst_key IS NULL AS counts
) AS k;
COMMENT ON VIEW cerebro.leaderboard IS 'The configs of your runs, best first within each run and group: by the first metric on the validation rows if there are any, else on the training rows.';
COMMENT ON COLUMN cerebro.leaderboard.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.leaderboard.rank IS 'Place within the run, in a run of groups within the group, from 1 for the best: by value, then by loss, then by mst_key; NULL for a config that failed, was deleted, or has not been measured';
COMMENT ON COLUMN cerebro.leaderboard.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.leaderboard.model_id IS 'Architecture';
COMMENT ON COLUMN cerebro.leaderboard.dataset IS 'Rows that decide: training or validation';
COMMENT ON COLUMN cerebro.leaderboard.metric IS 'Metric that decides: the first one that is not a loss, else the loss';
COMMENT ON COLUMN cerebro.leaderboard.value IS 'Value of the metric for the state that is the config''s result: the state after the last epoch that was evaluated, or with restore_best after the best one';
COMMENT ON COLUMN cerebro.leaderboard.loss IS 'The loss of the same state';
COMMENT ON COLUMN cerebro.leaderboard.epoch IS 'The epoch that left this state';
COMMENT ON COLUMN cerebro.leaderboard.newest_value IS 'The value after the last epoch that was evaluated';
COMMENT ON COLUMN cerebro.leaderboard.newest_epoch IS 'The epoch of the newest value; with the option order, "even", configs are ranked at an epoch that all of them have reached';
COMMENT ON COLUMN cerebro.leaderboard.deviation IS 'In a cross-validated run, the standard deviation of the folds'' values; value is their mean';
COMMENT ON COLUMN cerebro.leaderboard.fold_values IS 'In a cross-validated run, as text, the value on the rows of each fold, in their order, of the model that was trained without them';
COMMENT ON COLUMN cerebro.leaderboard.group_key IS 'In a run of groups, the group that the config was trained on: the values of its columns, as JSON; configs are ranked within each group';
COMMENT ON COLUMN cerebro.leaderboard.unit_key IS 'Number of the config in progress, visits and metrics: in a run of groups it is another one for each group; NULL in a cross-validated run, where a config has a number for each fold';
COMMENT ON COLUMN cerebro.leaderboard.best_value IS 'The best value after any epoch that was evaluated';
COMMENT ON COLUMN cerebro.leaderboard.best_epoch IS 'The epoch of the best value';
COMMENT ON COLUMN cerebro.leaderboard.compile_params IS 'Compile parameters of the config';
COMMENT ON COLUMN cerebro.leaderboard.fit_params IS 'Fit parameters of the config';
COMMENT ON COLUMN cerebro.leaderboard.failure IS 'Why the config failed; NULL if it did not';
COMMENT ON COLUMN cerebro.leaderboard.backend IS 'Engine that trains the config: tensorflow, jax or torch';

CREATE OR REPLACE VIEW cerebro.groups WITH (security_barrier) AS
SELECT
    b.run_id,
    b.group_key,
    b."rows",
    b.segments,
    CASE
        WHEN b.configs = 0 AND l.unchanged THEN 'unchanged'
        WHEN b.configs = 0 THEN 'left out'
        WHEN b.rank IS NOT NULL THEN 'measured'
        WHEN b.failed_configs = b.configs THEN 'failed'
        ELSE 'waiting'
    END AS status,
    CASE
        WHEN b.configs > 0 THEN b.failure
        WHEN l.unchanged THEN NULL
        WHEN b."rows" < l.min_rows THEN b."rows" || CASE WHEN b."rows" = 1 THEN ' row' ELSE ' rows' END || ', fewer than min_rows ' || l.min_rows
        ELSE 'fewer classes than min_classes ' || l.min_classes
    END AS reason,
    b.configs,
    b.failed_configs,
    b.mst_key,
    b.unit_key,
    b.dataset,
    b.metric,
    b.value,
    b.loss,
    b.epoch,
    b.best_value,
    b.best_epoch,
    b.group_key IS NULL AS is_fallback
FROM (
    -- FULL, since the models of all rows are of no group, and groups that are left out have no models. DISTINCT is the
    -- outermost there: through it a filter on one run reaches both sides.
    SELECT DISTINCT ON (run_id, group_key)
        run_id,
        group_key,
        g."rows",
        pg_catalog.cardinality(g.segments) AS segments,
        g.classes,
        pg_catalog.count(y.mst_key) OVER (PARTITION BY run_id, group_key) AS configs,
        pg_catalog.count(y.failure) OVER (PARTITION BY run_id, group_key) AS failed_configs,
        y.rank,
        y.failure,
        y.mst_key,
        y.unit_key,
        y.dataset,
        y.metric,
        y.value,
        y.loss,
        y.epoch,
        y.best_value,
        y.best_epoch
    FROM (
        SELECT
            x.run_id,
            x.key AS group_key,
            x."rows",
            x.segments,
            x.classes
        FROM cerebro._group AS x
        -- What is visible is decided in the scan that has the data, as in the view of visits.
        WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    ) AS g
    FULL JOIN (
        SELECT z.* FROM cerebro.leaderboard AS z
        WHERE z.run_id = ANY (ARRAY(
            SELECT v.run_id FROM cerebro._visible_run AS v
            WHERE EXISTS (SELECT FROM cerebro._group AS q WHERE q.run_id = v.run_id)
        ))
    ) AS y USING (run_id, group_key)
    ORDER BY run_id, group_key, y.rank, y.mst_key
) AS b
JOIN cerebro._visible_run AS r USING (run_id)
CROSS JOIN LATERAL (
    SELECT
        (r.limits::json ->> 'min_rows')::bigint AS min_rows,
        (r.limits::json ->> 'min_classes')::integer AS min_classes,
        -- Of a run that trains what has changed, a group that no option leaves out.
        (r.limits::json ->> 'changed_groups')::boolean
        AND b."rows" >= COALESCE((r.limits::json ->> 'min_rows')::bigint, 1)
        AND COALESCE(b.classes >= (r.limits::json ->> 'min_classes')::integer, true) AS unchanged
) AS l;
COMMENT ON VIEW cerebro.groups IS 'The groups of your runs, each with its best config, and the models of all rows, if a run has a fallback.';
COMMENT ON COLUMN cerebro.groups.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.groups.group_key IS 'The group: the values of the columns that make it, as JSON; NULL for the models of all rows';
COMMENT ON COLUMN cerebro.groups."rows" IS 'Rows of the group when the run began';
COMMENT ON COLUMN cerebro.groups.segments IS 'Number of segments that have rows of the group';
COMMENT ON COLUMN cerebro.groups.status IS 'measured; waiting, if no config has been measured yet; failed, if all configs have; left out, if the options of the run say so; or unchanged, if the run trains only groups that have changed';
COMMENT ON COLUMN cerebro.groups.reason IS 'Why the group was left out, or why its best config failed; otherwise NULL';
COMMENT ON COLUMN cerebro.groups.configs IS 'Number of configs that are trained on the group';
COMMENT ON COLUMN cerebro.groups.failed_configs IS 'Number of these that failed';
COMMENT ON COLUMN cerebro.groups.mst_key IS 'The best config of the group';
COMMENT ON COLUMN cerebro.groups.unit_key IS 'The number of this config of this group in progress, visits and metrics';
COMMENT ON COLUMN cerebro.groups.dataset IS 'Rows that decide: training or validation';
COMMENT ON COLUMN cerebro.groups.metric IS 'Metric that decides: the first one that is not a loss, else the loss';
COMMENT ON COLUMN cerebro.groups.value IS 'Value of this metric for the best config';
COMMENT ON COLUMN cerebro.groups.loss IS 'The loss of the same state';
COMMENT ON COLUMN cerebro.groups.epoch IS 'The epoch that left this state';
COMMENT ON COLUMN cerebro.groups.best_value IS 'The best value of this config after any epoch that was evaluated';
COMMENT ON COLUMN cerebro.groups.best_epoch IS 'The epoch of the best value';
COMMENT ON COLUMN cerebro.groups.is_fallback IS 'Whether these are the models of all rows, which answer for groups without models of their own';

CREATE OR REPLACE VIEW cerebro.progress WITH (security_barrier) AS
WITH now_running AS (
    -- A segment session names what it does in its application_name, which other sessions see at once.
    SELECT
        (m.words)[1] AS doing,
        (m.words)[2]::bigint AS run_id,
        (m.words)[3]::integer AS mst_key,
        (m.words)[4]::integer AS epoch,
        (m.words)[5]::integer AS segment
    FROM pg_catalog.pg_stat_activity AS a
    CROSS JOIN LATERAL pg_catalog.regexp_matches(
        a.application_name, '^cerebro (visit|evaluate|merge) run=(\d{1,18}) config=(\d{1,9}) epoch=(\d{1,9}) segment=(\d{1,9})$'
    ) AS m (words)
    WHERE a.datname = pg_catalog.current_database()
        -- On Greenplum it keeps the name of what it has done until it is given another.
        AND a.state IS DISTINCT FROM 'idle'
        -- Any role may call itself so; only a superuser's session can be one.
        AND a.usesysid IN (SELECT o.oid FROM pg_catalog.pg_roles AS o WHERE o.rolsuper)
),

going AS (
    -- Runs that a session stands behind; of those that crashed nothing is to be estimated, and they may be many.
    -- Whether one does is looked up as in the view of runs, which says more of it.
    SELECT r.run_id
    FROM cerebro._visible_run AS r
    JOIN cerebro._driver AS d USING (run_id)
    WHERE (SELECT e.event FROM cerebro._run_event AS e WHERE e.run_id = r.run_id ORDER BY e.at DESC LIMIT 1) = 'running'
        AND (
            ARRAY[(d.run_id & 2147483647) || ' ' || d.lock || ' ' || d.pid] && COALESCE(ARRAY(
                SELECT l.classid || ' ' || l.objid || ' ' || l.pid
                FROM pg_catalog.pg_locks AS l
                WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.objid::bigint >> 16 = 3300
                    AND l.database = (SELECT b.oid FROM pg_catalog.pg_database AS b WHERE b.datname = pg_catalog.current_database())
            ), '{}')
            OR pg_catalog.pg_is_in_recovery()
            OR NOT pg_catalog.txid_visible_in_snapshot(
                (SELECT n.last_value FROM cerebro._last_ending AS n), pg_catalog.txid_current_snapshot())
        )
),

measured AS (
    -- What visits of each kind of config take, and what it takes to measure one, beside what was estimated of visits:
    -- planner/costs.py has the same.
    SELECT
        w.*,
        w.in_order = pg_catalog.min(w.in_order) OVER (PARTITION BY w.run_id, w.evaluates, w.kind, w.segment) AS compiles
    FROM (
        SELECT
            x.run_id,
            FALSE AS evaluates,
            c.kind,
            x.segment,
            -- A bundle takes several groups through several epochs at once, and shares its seconds out.
            c.visit_seconds * CASE WHEN c.group_id IS NULL THEN 1
                ELSE x.step - COALESCE(pg_catalog.lag(x.step) OVER (PARTITION BY x.run_id, x.mst_key ORDER BY x.step), 0) END AS units,
            CASE WHEN c.group_id IS NULL THEN pg_catalog.date_part('epoch', x.ended_at - x.started_at)
                ELSE x.read_seconds + x.train_seconds + x.write_seconds END AS seconds,
            x.started_at,
            x.ended_at,
            -- All visits of a bundle begin at once.
            x.started_at AS in_order
        FROM cerebro._visit AS x
        JOIN cerebro._config AS c USING (run_id, mst_key)
        WHERE x.segment >= 0 AND x.run_id = ANY (ARRAY(SELECT g.run_id FROM going AS g))
        UNION ALL
        SELECT
            e.run_id,
            TRUE AS evaluates,
            c.kind,
            e.segment,
            c.visit_seconds AS units,
            e.seconds,
            e.at - e.seconds * '1 second'::interval AS started_at,
            e.at AS ended_at,
            e.at AS in_order
        FROM (
            SELECT x.run_id, x.mst_key, x.epoch, x.segment, pg_catalog.sum(x.seconds) AS seconds, pg_catalog.min(m.at) AS at
            FROM cerebro._evaluation AS x
            JOIN cerebro._metric AS m USING (run_id, mst_key, epoch)
            WHERE x.run_id = ANY (ARRAY(SELECT g.run_id FROM going AS g)) AND m.dataset = 'training' AND m."position" = 0
            GROUP BY x.run_id, x.mst_key, x.epoch, x.segment
        ) AS e
        JOIN cerebro._config AS c USING (run_id, mst_key)
    ) AS w
),

speeds AS (
    -- The newest counts half. Those that compile say nothing of those to come, and one alone says little.
    SELECT
        m.run_id,
        m.evaluates,
        m.kind,
        pg_catalog.sum(m.seconds * m.weight) AS seconds,
        pg_catalog.sum(m.units * m.weight) AS units
    FROM (
        SELECT
            n.*,
            pg_catalog.power(0.5::double precision, (n.age - 1)::double precision) AS weight
        FROM (
            SELECT
                o.*,
                pg_catalog.row_number() OVER (PARTITION BY o.run_id, o.evaluates, o.kind ORDER BY o.ended_at DESC, o.segment DESC) AS age,
                pg_catalog.count(*) OVER (PARTITION BY o.run_id, o.evaluates) AS known
            FROM measured AS o
            WHERE NOT o.compiles
        ) AS n
        WHERE n.age <= 40 AND n.known >= 4
    ) AS m
    GROUP BY m.run_id, m.evaluates, m.kind
),

pace AS (
    -- How long a run takes for each second of its visits and evaluations: it merges and waits as well. The newer half of
    -- its time says so, since what happens only once falls out of it: planner/costs.py has the same.
    SELECT
        m.run_id,
        pg_catalog.date_part('epoch', pg_catalog.max(m.ended_at) - pg_catalog.max(m.half))
        / NULLIF(pg_catalog.sum(LEAST(m.seconds, pg_catalog.date_part('epoch', m.ended_at - m.half))), 0) AS seconds
    FROM (
        SELECT
            n.run_id,
            n.seconds,
            n.ended_at,
            pg_catalog.min(n.started_at) OVER (PARTITION BY n.run_id)
            + (pg_catalog.max(n.ended_at) OVER (PARTITION BY n.run_id) - pg_catalog.min(n.started_at) OVER (PARTITION BY n.run_id)) / 2 AS half
        FROM measured AS n
    ) AS m
    WHERE m.ended_at > m.half
    GROUP BY m.run_id
)

SELECT
    r.run_id,
    c.mst_key,
    c.model_id,
    CASE
        WHEN f.mst_key IS NOT NULL THEN 'failed'
        WHEN c.deleted THEN 'deleted'
        WHEN n.doing = 'visit' AND NOT n.committed AND r.status IN ('running', 'paused') THEN 'training'
        WHEN n.doing <> 'visit' AND r.status IN ('running', 'paused') THEN 'evaluating'
        WHEN c.stopped THEN 'stopped'
        -- A search may give a config more epochs, but never more than the run has.
        WHEN v.step = c.epochs * r.segments AND (r.status = 'finished' OR y.search IS NULL OR c.epochs >= r.epochs)
            THEN 'finished'
        WHEN r.status <> 'running' THEN r.status
        ELSE 'waiting'
    END AS status,
    LEAST(v.step / r.segments + 1, c.epochs) AS epoch,
    c.epochs,
    v.step - c.first_step AS visits_done,
    c.epochs * r.segments - c.first_step AS visits_total,
    CASE WHEN n.doing <> 'visit' OR NOT n.committed THEN n.segment END AS segment,
    u.loss,
    CASE WHEN r.status = 'running' AND f.mst_key IS NULL AND NOT c.stopped AND NOT c.deleted
        THEN COALESCE(w.seconds * LEAST(r.segments, r.configs), 1) * (
            k.visit_seconds * (c.epochs * r.segments - v.step)
            -- Bundles measure in their visits. Until some were measured, it takes a third of a visit: the way forward.
            + CASE WHEN c.group_id IS NULL OR pg_catalog.cardinality(g.segments) > 1
                THEN r.segments * COALESCE(k.evaluation_seconds, k.visit_seconds / 3) * (
                    c.epochs / y.metrics_frequency - k.measured / y.metrics_frequency
                    + (c.epochs > k.measured AND c.epochs % y.metrics_frequency > 0)::integer
                ) ELSE 0 END
        ) END AS seconds_left,
    f.reason AS failure,
    c.compile_params,
    c.fit_params,
    c.source_key AS cloned_from,
    c.asked,
    a.model_arch::json #>> '{config,name}' AS net,
    c.config_key,
    c.fold,
    g.key AS group_key
FROM cerebro.runs AS r
JOIN cerebro._visible_run AS y USING (run_id)
JOIN cerebro._standing AS c USING (run_id)
LEFT JOIN cerebro._architecture AS a ON a.run_id = c.run_id AND a.model_id = c.model_id
LEFT JOIN cerebro._group AS g ON g.run_id = c.run_id AND g.group_id = c.group_id
LEFT JOIN cerebro._failure AS f ON f.run_id = c.run_id AND f.mst_key = c.mst_key
LEFT JOIN (
    SELECT DISTINCT ON (x.run_id, x.mst_key)
        x.run_id,
        x.mst_key,
        x.doing,
        x.segment,
        -- On Greenplum it is, a moment before the session on the coordinator hears of it.
        EXISTS (
            SELECT FROM cerebro._visit AS z
            WHERE z.run_id = x.run_id AND z.mst_key = x.mst_key AND z.epoch = x.epoch AND z.segment = x.segment
        ) AS committed
    FROM now_running AS x
    ORDER BY x.run_id, x.mst_key, x.doing DESC
) AS n ON n.run_id = c.run_id AND n.mst_key = c.mst_key
LEFT JOIN (
    -- For all configs at once, as in the view of runs.
    SELECT
        x.run_id,
        x.mst_key,
        -- Below zero are visits whose states are averaged; they count when that is done.
        pg_catalog.max(x.step) FILTER (WHERE x.step > 0)::bigint AS step,
        (pg_catalog.array_agg(x.loss ORDER BY x.epoch DESC, x.step DESC) FILTER (WHERE x.loss IS NOT NULL))[1] AS loss
    FROM cerebro._visit AS x
    WHERE x.run_id = ANY (ARRAY(SELECT z.run_id FROM cerebro._visible_run AS z))
    GROUP BY x.run_id, x.mst_key
) AS u ON u.run_id = c.run_id AND u.mst_key = c.mst_key
CROSS JOIN LATERAL (SELECT COALESCE(u.step, c.first_step::bigint) AS step) AS v
LEFT JOIN pace AS w ON w.run_id = c.run_id
LEFT JOIN cerebro._config AS o ON o.run_id = c.run_id AND o.mst_key = c.mst_key
LEFT JOIN (
    SELECT
        s.run_id,
        s.kind,
        pg_catalog.max(s.seconds / NULLIF(s.units, 0)) FILTER (WHERE NOT s.evaluates) AS visit,
        pg_catalog.max(s.seconds / NULLIF(s.units, 0)) FILTER (WHERE s.evaluates) AS evaluation
    FROM speeds AS s
    GROUP BY s.run_id, s.kind
) AS p ON p.run_id = o.run_id AND p.kind = o.kind
LEFT JOIN (
    SELECT
        s.run_id,
        pg_catalog.sum(s.seconds) FILTER (WHERE NOT s.evaluates)
        / NULLIF(pg_catalog.sum(s.units) FILTER (WHERE NOT s.evaluates), 0) AS visit,
        pg_catalog.sum(s.seconds) FILTER (WHERE s.evaluates)
        / NULLIF(pg_catalog.sum(s.units) FILTER (WHERE s.evaluates), 0) AS evaluation
    FROM speeds AS s
    GROUP BY s.run_id
) AS q ON q.run_id = c.run_id
LEFT JOIN (
    SELECT
        m.run_id,
        m.mst_key,
        pg_catalog.max(m.epoch) AS epoch
    FROM cerebro._metric AS m
    WHERE m.run_id = ANY (ARRAY(SELECT x.run_id FROM going AS x))
    GROUP BY m.run_id, m.mst_key
) AS h ON h.run_id = c.run_id AND h.mst_key = c.mst_key
CROSS JOIN LATERAL (
    SELECT
        -- A kind that was not visited yet takes the average of the others; before the first few, nobody knows.
        o.visit_seconds * COALESCE(p.visit, q.visit) AS visit_seconds,
        o.visit_seconds * COALESCE(p.evaluation, q.evaluation) AS evaluation_seconds,
        COALESCE(h.epoch, c.first_step / r.segments) AS measured
) AS k;
COMMENT ON VIEW cerebro.progress IS 'The progress of each config of your runs.';
COMMENT ON COLUMN cerebro.progress.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.progress.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.progress.model_id IS 'Architecture';
COMMENT ON COLUMN cerebro.progress.status IS 'waiting, training, evaluating, finished, stopped, deleted or failed; or the status of the run: paused, interrupted';
COMMENT ON COLUMN cerebro.progress.epoch IS 'Epoch that the config is in, counted from 1';
COMMENT ON COLUMN cerebro.progress.epochs IS 'Number of epochs that the config trains in all, as far as that is decided';
COMMENT ON COLUMN cerebro.progress.visits_done IS 'Visits that are committed';
COMMENT ON COLUMN cerebro.progress.visits_total IS 'Visits that the config makes in all: those of its epochs, less those that its source had made if it is a clone';
COMMENT ON COLUMN cerebro.progress.segment IS 'Segment that works on the config at this moment';
COMMENT ON COLUMN cerebro.progress.loss IS 'Loss over the config''s last visit';
COMMENT ON COLUMN cerebro.progress.seconds_left IS 'Estimated time of the remaining visits and evaluations and of the time between them: the estimate from before the run, corrected by its own visits; NULL until four visits have compiled nothing';
COMMENT ON COLUMN cerebro.progress.failure IS 'Why the config failed; NULL if it did not';
COMMENT ON COLUMN cerebro.progress.compile_params IS 'Compile parameters of the config';
COMMENT ON COLUMN cerebro.progress.fit_params IS 'Fit parameters of the config';
COMMENT ON COLUMN cerebro.progress.cloned_from IS 'Config that this one was cloned from; NULL if it is no clone';
COMMENT ON COLUMN cerebro.progress.asked IS 'Request of a person for this config that the run has not carried out yet';
COMMENT ON COLUMN cerebro.progress.config_key IS 'In a cross-validated run or a run of groups, the mst_key of the config in the model selection table; here mst_key numbers the config with its fold or group';
COMMENT ON COLUMN cerebro.progress.fold IS 'The fold that the config is measured on and not trained on; NULL if it is trained on all rows';
COMMENT ON COLUMN cerebro.progress.group_key IS 'In a run of groups, the group that the config is trained on: the values of its columns, as JSON';
COMMENT ON COLUMN cerebro.progress.net IS 'Name of the architecture in its JSON';

CREATE OR REPLACE VIEW cerebro.sizes WITH (security_barrier) AS
SELECT
    r.run_id,
    r.model_table,
    COALESCE(s.states, 0) AS states,
    COALESCE(s.state_bytes, 0) AS state_bytes,
    COALESCE(w.weight_bytes, 0) AS weight_bytes,
    COALESCE(v.visits, 0) AS visits,
    COALESCE(v.hopped_bytes, 0) AS hopped_bytes,
    COALESCE(f.frozen_bytes, 0) AS frozen_bytes
-- For all runs at once, as in the view of runs.
FROM cerebro._visible_run AS r
LEFT JOIN (
    SELECT
        y.run_id,
        pg_catalog.count(*) AS states,
        pg_catalog.sum(y.bytes)::bigint AS state_bytes
    FROM (
        SELECT x.run_id, pg_catalog.sum(pg_catalog.octet_length(x.data)) AS bytes FROM cerebro._state AS x
        WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
        GROUP BY x.run_id, x.mst_key, x.step
    ) AS y
    GROUP BY y.run_id
) AS s ON s.run_id = r.run_id
LEFT JOIN (
    SELECT x.run_id, pg_catalog.sum(pg_catalog.octet_length(x.weights))::bigint AS weight_bytes FROM cerebro._weights AS x
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS w ON w.run_id = r.run_id
LEFT JOIN (
    SELECT
        x.run_id,
        pg_catalog.count(*) FILTER (WHERE x.segment >= 0) AS visits,
        pg_catalog.sum(x.state_bytes)::bigint AS hopped_bytes
    FROM cerebro._visit AS x
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS v ON v.run_id = r.run_id
LEFT JOIN (
    SELECT x.run_id, pg_catalog.sum(pg_catalog.octet_length(x.data))::bigint AS frozen_bytes FROM cerebro._frozen AS x
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS f ON f.run_id = r.run_id;
COMMENT ON VIEW cerebro.sizes IS 'What your runs keep in the database besides their result tables; cerebro.forget removes it.';
COMMENT ON COLUMN cerebro.sizes.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.sizes.model_table IS 'Table with the models';
COMMENT ON COLUMN cerebro.sizes.states IS 'Number of stored states';
COMMENT ON COLUMN cerebro.sizes.state_bytes IS 'Their size in bytes, without frozen weights';
COMMENT ON COLUMN cerebro.sizes.weight_bytes IS 'Size of the weights that the run started from';
COMMENT ON COLUMN cerebro.sizes.visits IS 'Number of visits in the log';
COMMENT ON COLUMN cerebro.sizes.hopped_bytes IS 'Bytes of all states that visits have made, which hop from segment to segment: configs x epochs x segments x the size of a state';
COMMENT ON COLUMN cerebro.sizes.frozen_bytes IS 'Size of the weights that no training changes, such as those of frozen layers; they are stored once for all states that share them';

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

CREATE OR REPLACE VIEW cerebro.functions WITH (security_barrier) AS
-- OFFSET 0 keeps conditions of a user's out of the inner query: EXPLAIN ANALYZE would tell how many rows they find there.
SELECT f.* FROM (
    SELECT
        f.name,
        f.version,
        f.kind,
        f.source,
        f.description,
        f.higher_is_better,
        f.registered_by,
        f.at,
        f.digest,
        COALESCE(g.granted_to, '{}') AS granted_to
    FROM cerebro._function AS f
    LEFT JOIN (
        SELECT x.name, pg_catalog.max(x.version) AS version FROM cerebro._function AS x
        WHERE x.source IS NULL GROUP BY x.name
    ) AS ended ON ended.name = f.name
    LEFT JOIN (
        SELECT
            x.name,
            pg_catalog.array_agg(x.grantee ORDER BY x.grantee) AS granted_to,
            pg_catalog.bool_or(x.mine) AS usable
        FROM (
            SELECT
                y.name,
                CASE WHEN y.role = 0::oid THEN 'public' ELSE r.rolname::text END AS grantee,
                y.role = 0::oid OR pg_catalog.pg_has_role(y.role, 'USAGE') AS mine
            FROM cerebro._function_grant AS y
            LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = y.role
            WHERE y.role = 0::oid OR r.oid IS NOT NULL
        ) AS x
        GROUP BY x.name
    ) AS g ON g.name = f.name
    WHERE f.source IS NOT NULL
        AND f.version > COALESCE(ended.version, 0)
        AND (g.usable OR EXISTS (SELECT FROM pg_catalog.pg_roles AS s WHERE s.rolname = current_user AND s.rolsuper))
    OFFSET 0
) AS f;
COMMENT ON VIEW cerebro.functions IS 'Registered losses, metrics and layers that you may name in configs and architectures, each with all its versions. A superuser sees all of them.';
COMMENT ON COLUMN cerebro.functions.name IS 'Name to use in configs and architectures';
COMMENT ON COLUMN cerebro.functions.version IS 'Number of the version, counted from 1; new runs use the last one';
COMMENT ON COLUMN cerebro.functions.kind IS 'loss, metric or layer';
COMMENT ON COLUMN cerebro.functions.source IS 'Python source';
COMMENT ON COLUMN cerebro.functions.description IS 'What the function is for';
COMMENT ON COLUMN cerebro.functions.higher_is_better IS 'For a metric, whether a higher value is better; NULL if its name says it';
COMMENT ON COLUMN cerebro.functions.registered_by IS 'Superuser who registered this version';
COMMENT ON COLUMN cerebro.functions.at IS 'When this version was registered';
COMMENT ON COLUMN cerebro.functions.digest IS 'SHA-256 by which runs and models refer to this version';
COMMENT ON COLUMN cerebro.functions.granted_to IS 'Roles that may use it, public for all; superusers always may';

CREATE OR REPLACE VIEW cerebro.drift WITH (security_barrier) AS
SELECT
    pg_catalog.format('%I.%I', n.nspname, c.relname) AS packed_table,
    d.version,
    d.at,
    d.rows,
    d.column_name,
    d.nulls_before,
    d.nulls,
    d.unseen_before,
    d.unseen,
    d.mean_before,
    d.mean,
    d.stability
FROM cerebro._drift AS d
JOIN pg_catalog.pg_class AS c ON c.oid = d.packed::oid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE pg_catalog.pg_has_role(d.owner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');
COMMENT ON VIEW cerebro.drift IS 'How the rows that you added to packed tables differ from those before them. It has a row for each column and each call of append_rows.';
COMMENT ON COLUMN cerebro.drift.packed_table IS 'Packed table to which the rows were added';
COMMENT ON COLUMN cerebro.drift.version IS 'Version of the packed table that the rows made';
COMMENT ON COLUMN cerebro.drift.at IS 'When they were added';
COMMENT ON COLUMN cerebro.drift.rows IS 'How many were added';
COMMENT ON COLUMN cerebro.drift.column_name IS 'Column of the source; for a table that was packed without the option columns, an input of the net; or a label';
COMMENT ON COLUMN cerebro.drift.nulls_before IS 'Share of NULL in the rows that the table was packed from';
COMMENT ON COLUMN cerebro.drift.nulls IS 'Share of NULL in the rows that were added';
COMMENT ON COLUMN cerebro.drift.unseen_before IS 'Share of values, or of words, in the rows before that have no place of their own, because they are rare';
COMMENT ON COLUMN cerebro.drift.unseen IS 'Share of such values in the rows that were added, because they are rare or unseen';
COMMENT ON COLUMN cerebro.drift.mean_before IS 'Mean in the rows that the table was packed from; for dates, in seconds since 1970';
COMMENT ON COLUMN cerebro.drift.mean IS 'Mean in the rows that were added';
COMMENT ON COLUMN cerebro.drift.stability IS 'Population stability index between both: below 0.1 they are alike, above 0.25 they differ';

-- The last part of every install and update. Nothing of the extension is open to PUBLIC: grant_usage is the one door.

CREATE OR REPLACE FUNCTION cerebro._members(catalog regclass) RETURNS SETOF oid
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
SELECT d.objid
FROM pg_depend AS d
JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'cerebro' AND d.deptype = 'e' AND d.classid = catalog
$$;
COMMENT ON FUNCTION cerebro._members(regclass) IS
'Internal: the objects of the extension that one system catalog holds.';

CREATE OR REPLACE FUNCTION cerebro._usage_functions() RETURNS SETOF regprocedure
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
SELECT p.oid::regprocedure
FROM cerebro._members('pg_proc') AS member
JOIN pg_proc AS p ON p.oid = member
-- Public functions run with their caller's rights, and so the caller must be able to execute what they go through.
WHERE p.proname IN (
        '_boot', '_as_owner', '_array_bytes', '_json', '_text', '_predict_row', '_predict_statement', '_predict_batch', '_host_facts', '_reach_segments',
        '_take_buffer', '_take_row', '_give_pieces', '_join_pieces', '_give_predictions')
    OR (p.proname NOT LIKE '\_%' AND p.proname NOT IN (
        'grant_usage', 'revoke_usage',
        -- What a superuser alone may do.
        'register_function', 'unregister_function', 'grant_function', 'revoke_function'))
$$;
COMMENT ON FUNCTION cerebro._usage_functions() IS
'Internal: the functions that grant_usage opens to a role.';

CREATE OR REPLACE FUNCTION cerebro._usage_views() RETURNS SETOF regclass
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
SELECT c.oid::regclass
FROM cerebro._members('pg_class') AS member
JOIN pg_class AS c ON c.oid = member
WHERE c.relkind = 'v' AND c.relname NOT LIKE '\_%'
$$;
COMMENT ON FUNCTION cerebro._usage_views() IS
'Internal: the views that grant_usage opens to a role.';

CREATE OR REPLACE FUNCTION cerebro.grant_usage(role name) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    routine regprocedure;
    view regclass;
BEGIN
    PERFORM cerebro._reach_segments();
    EXECUTE format('GRANT USAGE ON SCHEMA cerebro TO %I', role);
    FOR routine IN SELECT f FROM cerebro._usage_functions() AS f LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %I', routine, role);
    END LOOP;
    FOR view IN SELECT v FROM cerebro._usage_views() AS v LOOP
        EXECUTE format('GRANT SELECT ON %s TO %I', view, role);
    END LOOP;
END
$$;
COMMENT ON FUNCTION cerebro.grant_usage(name) IS
'Lets a role use cerebro: its functions and views, and nothing else of it. May be repeated; only the owner of the extension or a superuser may call it.';

CREATE OR REPLACE FUNCTION cerebro.revoke_usage(role name) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM cerebro._reach_segments();
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA cerebro FROM %I', role);
    EXECUTE format('REVOKE ALL ON ALL ROUTINES IN SCHEMA cerebro FROM %I', role);
    EXECUTE format('REVOKE ALL ON SCHEMA cerebro FROM %I', role);
END
$$;
COMMENT ON FUNCTION cerebro.revoke_usage(name) IS
'Takes back what grant_usage gave to a role.';

CREATE OR REPLACE FUNCTION cerebro._unwanted_privileges(installing boolean) RETURNS TABLE (object text, grantee oid)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
SELECT format('ROUTINE %s', p.oid::regprocedure), a.grantee
FROM cerebro._members('pg_proc') AS member
JOIN pg_proc AS p ON p.oid = member
CROSS JOIN aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
WHERE a.grantee <> p.proowner
    AND (installing OR a.grantee = 0 OR NOT EXISTS (SELECT FROM cerebro._usage_functions() AS f WHERE f::oid = p.oid))
UNION
SELECT format('%s %s', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass), a.grantee
FROM cerebro._members('pg_class') AS member
JOIN pg_class AS c ON c.oid = member
CROSS JOIN aclexplode(c.relacl) AS a
WHERE a.grantee <> c.relowner
    AND (installing OR (c.relkind <> 'v' AND EXISTS (
        SELECT FROM pg_default_acl AS d CROSS JOIN aclexplode(d.defaclacl) AS b
        WHERE d.defaclrole = c.relowner AND d.defaclobjtype IN ('r', 'S') AND b.grantee = a.grantee)))
UNION
SELECT 'SCHEMA cerebro', a.grantee
FROM pg_namespace AS n CROSS JOIN aclexplode(n.nspacl) AS a
WHERE n.nspname = 'cerebro' AND installing AND a.grantee <> n.nspowner
$$;
COMMENT ON FUNCTION cerebro._unwanted_privileges(boolean) IS
'Internal: what others have been given by the server''s defaults or by ALTER DEFAULT PRIVILEGES, which reach into extensions.';

DO $$
DECLARE
    unwanted record;
    view regclass;
    role name;
BEGIN
    -- Only where there is something to revoke: PostgreSQL takes the privileges of an object that a script touches for
    -- the extension's own, those that administrators have granted on it included, and pg_dump would leave them out.
    FOR unwanted IN
        SELECT * FROM cerebro._unwanted_privileges(current_setting('cerebro.installing', TRUE) IS NOT DISTINCT FROM 'on')
    LOOP
        EXECUTE format(
            'REVOKE ALL ON %s FROM %s',
            unwanted.object, CASE unwanted.grantee WHEN 0 THEN 'PUBLIC' ELSE unwanted.grantee::regrole::text END);
    END LOOP;

    IF NOT has_schema_privilege('pg_monitor', 'cerebro', 'USAGE') THEN
        GRANT USAGE ON SCHEMA cerebro TO pg_monitor;
    END IF;
    FOR view IN
        SELECT v FROM cerebro._usage_views() AS v WHERE NOT has_table_privilege('pg_monitor', v, 'SELECT')
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO pg_monitor', view);
    END LOOP;

    -- Greenplum's pg_dump writes the policies of an extension's tables down, and what it restores has them already. Without one
    -- a table that has row-level security is closed to all but its owner: nobody is granted these.
    IF version() LIKE '%Greenplum%' THEN
        FOR unwanted IN
            SELECT p.polname, p.polrelid::regclass AS object
            FROM cerebro._members('pg_class') AS member
            JOIN pg_policy AS p ON p.polrelid = member
        LOOP
            EXECUTE format('DROP POLICY %I ON %s', unwanted.polname, unwanted.object);
        END LOOP;
    END IF;

    -- An update may have brought functions that the roles of grant_usage do not hold yet.
    FOR role IN
        SELECT r.rolname
        FROM pg_proc AS p, aclexplode(p.proacl) AS a, pg_roles AS r
        WHERE p.oid = 'cerebro._boot()'::regprocedure AND r.oid = a.grantee AND a.grantee <> p.proowner
    LOOP
        PERFORM cerebro.grant_usage(role);
    END LOOP;

    -- PostgreSQL has taken those grants for the extension's own, and pg_dump would leave them out: its own are the
    -- owner's and the monitors'. From PostgreSQL 17 on, pg_shdepend names the roles of initial privileges as well.
    IF version() LIKE '%Greenplum%' THEN
        PERFORM set_config('allow_system_table_mods', 'on', TRUE);
    END IF;
    UPDATE pg_init_privs AS i
    SET initprivs = ARRAY(
        SELECT item FROM unnest(i.initprivs) AS item
        WHERE NOT EXISTS (
            SELECT FROM aclexplode(ARRAY[item]) AS a WHERE a.grantee NOT IN (a.grantor, 'pg_monitor'::regrole)))
    FROM pg_depend AS d
    JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
    WHERE e.extname = 'cerebro' AND d.deptype = 'e' AND d.classid = i.classoid AND d.objid = i.objoid;
    DELETE FROM pg_shdepend AS s USING pg_depend AS d, pg_extension AS e
    WHERE e.extname = 'cerebro' AND d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
        AND s.deptype = 'i' AND s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND s.classid = d.classid AND s.objid = d.objid AND s.refobjid <> 'pg_monitor'::regrole;
END
$$;
