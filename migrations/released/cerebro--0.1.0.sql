\echo Use "CREATE EXTENSION cerebro" to load this file. \quit

SET LOCAL search_path = pg_catalog, pg_temp;

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
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
GD["cerebro"].run_pending()
$$;
COMMENT ON FUNCTION cerebro._as_owner() IS
'Internal: runs the one piece of work that the extension has laid out in this session, with the rights of the extension''s owner; refuses when there is none.';

CREATE OR REPLACE FUNCTION cerebro._boot() RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
from importlib.util import find_spec

packages, site = "@PYTHON_DIR@", "@SITE_PACKAGES@"
loaded = sys.modules.get("cerebro_plpy")
if loaded is not None and not loaded.__file__.startswith(packages + "/"):
    plpy.error(
        "this session has loaded another version of cerebro",
        hint="Start a new session.",
        sqlstate="55000",
    )
# First, because the system's own folders and the home of the server's user may hold the same packages in other versions.
for folder in (site, packages):
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)
missing = [name for name in ("numpy", "psycopg2", "keras") if find_spec(name) is None]
if not any(find_spec(name) for name in ("tensorflow", "jax", "torch")):
    missing.append("tensorflow (or jax, or torch)")
if missing:
    plpy.error(
        f"cerebro finds no Python package {', '.join(missing)}",
        detail=f"Packages are looked for in {site}.",
        hint="As the administrator of the server run: python%d.%d -m pip install --require-hashes --target=%s -r %s"
        % (*sys.version_info[:2], site, packages + "/requirements.lock"),
        sqlstate="58P01",
    )
import cerebro_plpy.entry

GD["cerebro"] = cerebro_plpy.entry
$$;
COMMENT ON FUNCTION cerebro._boot() IS
'Internal: loads the Python side of the extension once per session, from the folders that were fixed when it was installed.';

CREATE OR REPLACE FUNCTION cerebro._segment(command text, request text) RETURNS text
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].segment(command, request)
$$;
COMMENT ON FUNCTION cerebro._segment(text, text) IS
'Internal: what a segment session does, a visit for example; request and answer are JSON. Granted to nobody: segment sessions run as the owner.';

CREATE OR REPLACE FUNCTION cerebro.convert_array_to_bytea(var real[]) RETURNS bytea
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].array_to_bytes(var, "<f4")
$$;
COMMENT ON FUNCTION cerebro.convert_array_to_bytea(real[]) IS
'An array as raw little-endian float32, the form of features in a packed table.';

CREATE OR REPLACE FUNCTION cerebro.convert_array_to_bytea(var smallint[]) RETURNS bytea
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].array_to_bytes(var, "<i2")
$$;
COMMENT ON FUNCTION cerebro.convert_array_to_bytea(smallint[]) IS
'An array as raw little-endian int16, the form of one-hot labels in a packed table.';

CREATE OR REPLACE FUNCTION cerebro.convert_bytea_to_real_array(var bytea) RETURNS real[]
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].bytes_to_array(var, "<f4")
$$;
COMMENT ON FUNCTION cerebro.convert_bytea_to_real_array(bytea) IS
'The features of a packed table, raw float32, as a flat array.';

CREATE OR REPLACE FUNCTION cerebro.convert_bytea_to_smallint_array(var bytea) RETURNS smallint[]
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].bytes_to_array(var, "<i2")
$$;
COMMENT ON FUNCTION cerebro.convert_bytea_to_smallint_array(bytea) IS
'The one-hot labels of a packed table, raw int16, as a flat array.';

CREATE OR REPLACE FUNCTION cerebro.delete_keras_model(
    keras_model_arch_table varchar,
    model_id integer,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].delete_keras_model(keras_model_arch_table, model_id, search_path)
$$;
COMMENT ON FUNCTION cerebro.delete_keras_model IS
'Removes an architecture from its table, and the table with the last one.';

CREATE OR REPLACE FUNCTION cerebro.forget(
    run_id bigint
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].forget(run_id)
$$;
COMMENT ON FUNCTION cerebro.forget IS
'Removes the states and log rows of one of your runs; its result tables stay, but nothing can go on from its states any more.';

CREATE OR REPLACE FUNCTION cerebro.generate_model_configs(
    model_arch_table varchar,
    model_selection_table varchar,
    model_id_list integer[],
    compile_params_grid varchar,
    fit_params_grid varchar,
    search_type varchar DEFAULT 'grid',
    num_configs integer DEFAULT NULL,
    random_state integer DEFAULT NULL,
    object_table varchar DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].generate_model_configs(model_arch_table, model_selection_table, model_id_list, compile_params_grid, fit_params_grid, search_type, num_configs, random_state, object_table, search_path)
$$;
COMMENT ON FUNCTION cerebro.generate_model_configs IS
'Makes a model selection table, or adds to one, from grids of parameters: every combination (grid) or so many drawn at random (random).';

CREATE OR REPLACE FUNCTION cerebro.load_keras_model(
    keras_model_arch_table varchar,
    model_arch json,
    model_weights bytea DEFAULT NULL,
    name text DEFAULT NULL,
    description text DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].load_keras_model(keras_model_arch_table, model_arch, model_weights, name, description, search_path)
$$;
COMMENT ON FUNCTION cerebro.load_keras_model IS
'Checks a Keras architecture (JSON of Keras 3 or Keras 2, with weights if they are given) and adds it to a table of architectures, which is made if it is not there.';

CREATE OR REPLACE FUNCTION cerebro.load_model_selection_table(
    model_arch_table varchar,
    model_selection_table varchar,
    model_id_list integer[],
    compile_params_list varchar[],
    fit_params_list varchar[],
    object_table varchar DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].load_model_selection_table(model_arch_table, model_selection_table, model_id_list, compile_params_list, fit_params_list, object_table, search_path)
$$;
COMMENT ON FUNCTION cerebro.load_model_selection_table IS
'Makes a model selection table: one config for every combination of architectures, compile parameters and fit parameters.';

CREATE OR REPLACE FUNCTION cerebro.madlib_evaluate(
    model_table varchar,
    test_table varchar,
    output_table varchar,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL,
    options jsonb DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].evaluate(model_table, test_table, output_table, use_gpus, mst_key, options, search_path)
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
    options jsonb DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].fit(source_table, model, model_arch_table, model_id, compile_params, fit_params, num_iterations, use_gpus, validation_table, metrics_compute_frequency, warm_start, name, description, object_table, options, search_path)
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
    options jsonb DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].fit_multiple_model(source_table, model_output_table, model_selection_table, num_iterations, use_gpus, validation_table, metrics_compute_frequency, warm_start, name, description, use_caching, options, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_fit_multiple_model IS
'The same as madlib_keras_fit_multiple_model.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_evaluate(
    model_table varchar,
    test_table varchar,
    output_table varchar,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL,
    options jsonb DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].evaluate(model_table, test_table, output_table, use_gpus, mst_key, options, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_evaluate IS
'Measures the loss and the metrics of a trained model on all rows of a packed table; mst_key names one of several models.';

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
    options jsonb DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].fit(source_table, model, model_arch_table, model_id, compile_params, fit_params, num_iterations, use_gpus, validation_table, metrics_compute_frequency, warm_start, name, description, object_table, options, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_fit IS
'Trains one architecture with one set of parameters on a packed table and leaves the model and its summary in two tables. The options are those of madlib_fit_multiple_model.';

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
    options jsonb DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].fit_multiple_model(source_table, model_output_table, model_selection_table, num_iterations, use_gpus, validation_table, metrics_compute_frequency, warm_start, name, description, use_caching, options, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_fit_multiple_model IS
'Trains every config of a model selection table on a packed table by Model Hopper Parallelism and leaves the models, their metrics and a summary in three tables. The options may name seed, backend, memory_mb and threads.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type varchar DEFAULT 'prob',
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict(
    varchar, varchar, varchar, varchar, varchar, varchar, boolean, integer, text
) IS
'Predicts the rows of a table (one example per row, not packed) with a trained model and writes the predictions to a new table: the id in its own type, class_name, class_value, prob and rank; for a model that predicts numbers the id, class_name and prediction (a number, or an array where an output has several values). pred_type is ''prob'' for all classes, or ''response'' for the most probable one of each row (then without rank). mst_key names the model of a table of madlib_fit_multiple_model.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type integer,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict(
    varchar, varchar, varchar, varchar, varchar, integer, boolean, integer, text
) IS
'Predicts the rows of a table (one example per row, not packed) with a trained model and writes the predictions to a new table: the id in its own type, class_name, class_value, prob and rank; for a model that predicts numbers the id, class_name and prediction (a number, or an array where an output has several values). Here pred_type k asks for the k most probable classes of each row.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type double precision,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict(
    varchar, varchar, varchar, varchar, varchar, double precision, boolean, integer, text
) IS
'Predicts the rows of a table (one example per row, not packed) with a trained model and writes the predictions to a new table: the id in its own type, class_name, class_value, prob and rank; for a model that predicts numbers the id, class_name and prediction (a number, or an array where an output has several values). Here pred_type p, from 0 to below 1, asks for the classes whose probability is greater than p.';

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
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict_byom(
    model_arch_table, model_id, (class_values, normalizing_const, dependent_count),
    test_table, id_col, independent_varname, output_table, pred_type, use_gpus, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict_byom(
    varchar, integer, varchar, varchar, varchar, varchar, varchar, boolean, text[], double precision, integer, text
) IS
'Predicts the rows of a table with a model of the user''s own, an architecture that was stored with its weights, and writes what madlib_keras_predict writes. class_values names the classes (one list for each output, dependent_count of them); without it they are numbered from 0. A model with a single output unit and no sigmoid predicts numbers then.';

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
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict_byom(
    model_arch_table, model_id, (class_values, normalizing_const, dependent_count),
    test_table, id_col, independent_varname, output_table, pred_type, use_gpus, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict_byom(
    varchar, integer, varchar, varchar, varchar, varchar, integer, boolean, text[], double precision, integer, text
) IS
'Predicts the rows of a table with a model of the user''s own, an architecture that was stored with its weights, and writes what madlib_keras_predict writes. class_values names the classes (one list for each output, dependent_count of them); without it they are numbered from 0. Here pred_type k asks for the k most probable classes of each row.';

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
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict_byom(
    model_arch_table, model_id, (class_values, normalizing_const, dependent_count),
    test_table, id_col, independent_varname, output_table, pred_type, use_gpus, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict_byom(
    varchar, integer, varchar, varchar, varchar, varchar, double precision, boolean, text[], double precision, integer, text
) IS
'Predicts the rows of a table with a model of the user''s own, an architecture that was stored with its weights, and writes what madlib_keras_predict writes. class_values names the classes (one list for each output, dependent_count of them); without it they are numbered from 0. Here pred_type p, from 0 to below 1, asks for the classes whose probability is greater than p.';

CREATE OR REPLACE FUNCTION cerebro.madlib_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type varchar DEFAULT 'prob',
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_predict(
    varchar, varchar, varchar, varchar, varchar, varchar, boolean, integer, text
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
    mst_key integer DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_predict(
    varchar, varchar, varchar, varchar, varchar, integer, boolean, integer, text
) IS
'The same as madlib_keras_predict. Here pred_type k asks for the k most probable classes of each row.';

CREATE OR REPLACE FUNCTION cerebro.madlib_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type double precision,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus, search_path)
$$;
COMMENT ON FUNCTION cerebro.madlib_predict(
    varchar, varchar, varchar, varchar, varchar, double precision, boolean, integer, text
) IS
'The same as madlib_keras_predict. Here pred_type p, from 0 to below 1, asks for the classes whose probability is greater than p.';

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
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict_one(model, mst_key, features)
$$;
COMMENT ON FUNCTION cerebro.predict(regclass, integer, double precision[]) IS
'Predicts one row, given as a numeric array, inside any query: the most probable class with its probability, or the prediction of a model for numbers. mst_key is NULL for a model of madlib_fit. The model stays in the session''s memory. Use it in FROM (FROM rows, cerebro.predict(''model'', 1, x)), or as (cerebro.predict(…)).class.';

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
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict_one(model, mst_key, features)
$$;
COMMENT ON FUNCTION cerebro.predict(regclass, integer, bytea) IS
'Predicts one row, given as bytes (uint8 images), inside any query: the most probable class with its probability, or the prediction of a model for numbers. mst_key is NULL for a model of madlib_fit. The model stays in the session''s memory. Use it in FROM (FROM rows, cerebro.predict(''model'', 1, x)), or as (cerebro.predict(…)).class.';

CREATE OR REPLACE FUNCTION cerebro.resume(
    run_id bigint,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].resume(run_id, search_path)
$$;
COMMENT ON FUNCTION cerebro.resume IS
'Goes on with one of your runs that was interrupted, from its last committed visits, and leaves the tables that it would have left undisturbed.';

CREATE OR REPLACE FUNCTION cerebro.training_preprocessor_dl(
    source_table varchar,
    output_table varchar,
    dependent_varname varchar,
    independent_varname varchar,
    buffer_size integer DEFAULT NULL,
    normalizing_const real DEFAULT 1.0,
    num_classes integer[] DEFAULT NULL,
    distribution_rules text DEFAULT NULL,
    options jsonb DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].training_preprocessor_dl(
    source_table, output_table, dependent_varname, independent_varname, buffer_size, normalizing_const, num_classes,
    distribution_rules, options, search_path)
$$;
COMMENT ON FUNCTION cerebro.training_preprocessor_dl(
    varchar, varchar, varchar, varchar, integer, real, integer[], text, jsonb, text
) IS
'Packs a table for training: shuffles its rows by a seed, deals them evenly to segments and stores them in buffers of arrays, features divided by normalizing_const and labels one-hot (or as numbers for regression). Options: segments, seed, shape, task (classification or regression), memory_mb.';

CREATE OR REPLACE FUNCTION cerebro.validation_preprocessor_dl(
    source_table varchar,
    output_table varchar,
    dependent_varname varchar,
    independent_varname varchar,
    training_preprocessor_table varchar,
    buffer_size integer DEFAULT NULL,
    distribution_rules text DEFAULT NULL,
    options jsonb DEFAULT NULL,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].validation_preprocessor_dl(
    source_table, output_table, dependent_varname, independent_varname, training_preprocessor_table, buffer_size,
    distribution_rules, options, search_path)
$$;
COMMENT ON FUNCTION cerebro.validation_preprocessor_dl(
    varchar, varchar, varchar, varchar, varchar, integer, text, jsonb, text
) IS
'Packs a table for validation as its training table was packed: the same normalizing constant, class values, segments and seed. Options: memory_mb.';

CREATE OR REPLACE VIEW cerebro._visible_run WITH (security_barrier) AS
SELECT r.*
FROM cerebro._run AS r
WHERE r.kind <> 'evaluation'
    AND (pg_catalog.pg_has_role(r.owner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE'));
COMMENT ON VIEW cerebro._visible_run IS 'Internal: the runs that the current role may know of, its own and for monitors all.';

CREATE OR REPLACE VIEW cerebro.runs WITH (security_barrier) AS
SELECT
    r.run_id,
    pg_catalog.pg_get_userbyid(r.owner)::text AS owner,
    -- A run whose driving session is gone is not running, whatever its last row says.
    CASE WHEN e.event = 'running' AND l.held IS NULL THEN 'interrupted' ELSE e.event END AS status,
    r.name,
    r.description,
    r.source_table,
    r.validation_table,
    r.model_table,
    c.configs,
    f.failed_configs,
    r.epochs,
    r.segments,
    v.visits_done,
    c.configs * r.epochs * r.segments AS visits_total,
    r.seed,
    r.topology,
    r.started_at,
    CASE WHEN e.event = 'running' AND l.held IS NOT NULL THEN NULL ELSE GREATEST(e.at, v.ended_at) END AS ended_at,
    pg_catalog.date_part('epoch',
        CASE WHEN e.event = 'running' AND l.held IS NOT NULL
            THEN pg_catalog.clock_timestamp() ELSE GREATEST(e.at, v.ended_at) END - r.started_at) AS seconds,
    e.detail
FROM cerebro._visible_run AS r
CROSS JOIN LATERAL (
    SELECT x.event, x.at, x.detail FROM cerebro._run_event AS x
    WHERE x.run_id = r.run_id ORDER BY x.at DESC LIMIT 1
) AS e
CROSS JOIN LATERAL (SELECT pg_catalog.count(*) AS configs FROM cerebro._config AS x WHERE x.run_id = r.run_id) AS c
CROSS JOIN LATERAL (SELECT pg_catalog.count(*) AS failed_configs FROM cerebro._failure AS x WHERE x.run_id = r.run_id) AS f
CROSS JOIN LATERAL (
    SELECT pg_catalog.count(*) AS visits_done, pg_catalog.max(x.ended_at) AS ended_at
    FROM cerebro._visit AS x WHERE x.run_id = r.run_id
) AS v
LEFT JOIN LATERAL (
    -- The advisory lock that the session behind a run holds; 216329024 is its class. Any role may take such a lock; only
    -- a superuser's session, or inline the owner's, can be behind the run.
    SELECT TRUE AS held FROM pg_catalog.pg_locks AS x
    JOIN pg_catalog.pg_stat_activity AS a USING (pid)
    WHERE x.locktype = 'advisory' AND x.classid = 216329024 AND x.objsubid = 2 AND x.granted
        AND x.objid = (r.run_id & 2147483647)::oid
        AND x.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
        AND (a.usesysid = r.owner OR a.usesysid IN (SELECT o.oid FROM pg_catalog.pg_roles AS o WHERE o.rolsuper))
    LIMIT 1
) AS l ON TRUE;
COMMENT ON VIEW cerebro.runs IS 'Your runs, one row each, while they go on and afterwards.';
COMMENT ON COLUMN cerebro.runs.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.runs.owner IS 'Role that made the call';
COMMENT ON COLUMN cerebro.runs.status IS 'running, finished, failed, or interrupted (cancelled, or its session is gone)';
COMMENT ON COLUMN cerebro.runs.name IS 'Name given in the call';
COMMENT ON COLUMN cerebro.runs.description IS 'Description given in the call';
COMMENT ON COLUMN cerebro.runs.source_table IS 'Packed table that is trained on';
COMMENT ON COLUMN cerebro.runs.validation_table IS 'Packed table that is validated on';
COMMENT ON COLUMN cerebro.runs.model_table IS 'Table that gets the models';
COMMENT ON COLUMN cerebro.runs.configs IS 'Number of configs';
COMMENT ON COLUMN cerebro.runs.failed_configs IS 'Number of configs that failed while they trained';
COMMENT ON COLUMN cerebro.runs.epochs IS 'Number of epochs asked for';
COMMENT ON COLUMN cerebro.runs.segments IS 'Number of segments';
COMMENT ON COLUMN cerebro.runs.visits_done IS 'Visits that are committed';
COMMENT ON COLUMN cerebro.runs.visits_total IS 'Visits of the whole run: configs x epochs x segments';
COMMENT ON COLUMN cerebro.runs.seed IS 'Seed that, with the rows and the number of segments, decides every bit of the result';
COMMENT ON COLUMN cerebro.runs.topology IS 'local (segment sessions) or inline (the caller''s session alone)';
COMMENT ON COLUMN cerebro.runs.started_at IS 'When it began';
COMMENT ON COLUMN cerebro.runs.ended_at IS 'When it ended; NULL while it runs';
COMMENT ON COLUMN cerebro.runs.seconds IS 'How long it took, or has taken so far';
COMMENT ON COLUMN cerebro.runs.detail IS 'Why it did not end well';

CREATE OR REPLACE VIEW cerebro.visits WITH (security_barrier) AS
SELECT
    v.run_id,
    v.mst_key,
    v.step,
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
    v.ended_at
FROM cerebro._visit AS v
JOIN cerebro._visible_run AS r USING (run_id);
COMMENT ON VIEW cerebro.visits IS 'The timeline of your runs: which config trained on which segment when.';
COMMENT ON COLUMN cerebro.visits.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.visits.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.visits.step IS 'The config''s visits, counted from 1';
COMMENT ON COLUMN cerebro.visits.epoch IS 'Epoch, counted from 1';
COMMENT ON COLUMN cerebro.visits.segment IS 'Segment, counted from 0';
COMMENT ON COLUMN cerebro.visits."rows" IS 'Rows of the segment''s partition';
COMMENT ON COLUMN cerebro.visits.loss IS 'Loss over the visit, as Keras reports it while it trains';
COMMENT ON COLUMN cerebro.visits.state_bytes IS 'Size of the state that the visit wrote';
COMMENT ON COLUMN cerebro.visits.read_seconds IS 'Time until rows and state were in memory and the model compiled';
COMMENT ON COLUMN cerebro.visits.train_seconds IS 'Time of training proper';
COMMENT ON COLUMN cerebro.visits.write_seconds IS 'Time to write the new state';
COMMENT ON COLUMN cerebro.visits.pid IS 'Process of the segment session';
COMMENT ON COLUMN cerebro.visits.started_at IS 'When the visit began';
COMMENT ON COLUMN cerebro.visits.ended_at IS 'When it was about to commit';

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
FROM cerebro._metric AS m
JOIN cerebro._visible_run AS r USING (run_id);
COMMENT ON VIEW cerebro.metrics IS 'What the configs of your runs reached after the epochs that were evaluated.';
COMMENT ON COLUMN cerebro.metrics.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.metrics.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.metrics.epoch IS 'Epoch after which it was measured';
COMMENT ON COLUMN cerebro.metrics.dataset IS 'training or validation';
COMMENT ON COLUMN cerebro.metrics.metric IS 'Name of the metric as Keras gives it; loss is always there';
COMMENT ON COLUMN cerebro.metrics.value IS 'Value over all rows of all segments';
COMMENT ON COLUMN cerebro.metrics.higher_is_better IS 'Direction of the metric';
COMMENT ON COLUMN cerebro.metrics.at IS 'When it was measured';

CREATE OR REPLACE VIEW cerebro.leaderboard WITH (security_barrier) AS
WITH deciding AS (
    -- The first metric that is no loss, else the loss; on the validation rows where there are any.
    SELECT DISTINCT ON (m.run_id, m.mst_key)
        m.run_id,
        m.mst_key,
        m.dataset,
        m.metric
    FROM cerebro._metric AS m
    ORDER BY m.run_id, m.mst_key, (m.dataset = 'validation') DESC,
        (m.metric = 'loss' OR pg_catalog.right(m.metric, 5) = '_loss'), m."position"
),

history AS (
    SELECT
        d.run_id,
        d.mst_key,
        d.dataset,
        d.metric,
        m.epoch,
        m.value,
        l.value AS loss,
        m.higher_is_better,
        CASE WHEN m.value = 'NaN' THEN NULL WHEN m.higher_is_better THEN -m.value ELSE m.value END AS badness
    FROM deciding AS d
    JOIN cerebro._metric AS m USING (run_id, mst_key, dataset, metric)
    LEFT JOIN cerebro._metric AS l
        ON l.run_id = d.run_id AND l.mst_key = d.mst_key AND l.dataset = d.dataset AND l.epoch = m.epoch
        AND l.metric = 'loss'
),

latest AS (
    SELECT DISTINCT ON (h.run_id, h.mst_key) h.* FROM history AS h ORDER BY h.run_id, h.mst_key, h.epoch DESC
),

best AS (
    SELECT DISTINCT ON (h.run_id, h.mst_key)
        h.run_id,
        h.mst_key,
        h.epoch,
        h.value
    FROM history AS h ORDER BY h.run_id, h.mst_key, h.badness, h.epoch
)

SELECT
    r.run_id,
    pg_catalog.rank() OVER (
        PARTITION BY r.run_id ORDER BY (f.mst_key IS NOT NULL), latest.badness, latest.loss
    ) AS rank,
    c.mst_key,
    c.model_id,
    latest.dataset,
    latest.metric,
    latest.value,
    latest.loss,
    latest.epoch,
    best.value AS best_value,
    best.epoch AS best_epoch,
    c.compile_params,
    c.fit_params,
    f.reason AS failure
FROM cerebro._visible_run AS r
JOIN cerebro._config AS c USING (run_id)
LEFT JOIN latest ON latest.run_id = c.run_id AND latest.mst_key = c.mst_key
LEFT JOIN best ON best.run_id = c.run_id AND best.mst_key = c.mst_key
LEFT JOIN cerebro._failure AS f ON f.run_id = c.run_id AND f.mst_key = c.mst_key;
COMMENT ON VIEW cerebro.leaderboard IS 'The configs of your runs, best first within each run: by the first metric on the validation rows if there are any, else on the training rows.';
COMMENT ON COLUMN cerebro.leaderboard.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.leaderboard.rank IS 'Place within the run, 1 is best';
COMMENT ON COLUMN cerebro.leaderboard.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.leaderboard.model_id IS 'Architecture';
COMMENT ON COLUMN cerebro.leaderboard.dataset IS 'Rows that decide: training or validation';
COMMENT ON COLUMN cerebro.leaderboard.metric IS 'Metric that decides: the first that is no loss, else the loss';
COMMENT ON COLUMN cerebro.leaderboard.value IS 'Its value after the last epoch that was evaluated';
COMMENT ON COLUMN cerebro.leaderboard.loss IS 'The loss at the same time';
COMMENT ON COLUMN cerebro.leaderboard.epoch IS 'The epoch of value and loss';
COMMENT ON COLUMN cerebro.leaderboard.best_value IS 'The best value after any epoch that was evaluated';
COMMENT ON COLUMN cerebro.leaderboard.best_epoch IS 'The epoch of the best value';
COMMENT ON COLUMN cerebro.leaderboard.compile_params IS 'Compile parameters of the config';
COMMENT ON COLUMN cerebro.leaderboard.fit_params IS 'Fit parameters of the config';
COMMENT ON COLUMN cerebro.leaderboard.failure IS 'Why the config failed; NULL if it did not';

CREATE OR REPLACE VIEW cerebro.progress WITH (security_barrier) AS
WITH now_running AS (
    -- A segment session names what it does in its application_name, which other sessions see at once.
    SELECT
        (m.words)[1] AS doing,
        (m.words)[2]::bigint AS run_id,
        (m.words)[3]::integer AS mst_key,
        (m.words)[5]::integer AS segment
    FROM pg_catalog.pg_stat_activity AS a
    CROSS JOIN LATERAL pg_catalog.regexp_matches(
        a.application_name, '^cerebro (visit|evaluate|merge) run=(\d{1,18}) config=(\d{1,9}) epoch=(\d{1,9}) segment=(\d{1,9})$'
    ) AS m (words)
    WHERE a.datname = pg_catalog.current_database()
        -- Any role may call itself so; only a superuser's session can be one.
        AND a.usesysid IN (SELECT o.oid FROM pg_catalog.pg_roles AS o WHERE o.rolsuper)
)

SELECT
    r.run_id,
    c.mst_key,
    c.model_id,
    CASE
        WHEN f.mst_key IS NOT NULL THEN 'failed'
        WHEN r.status <> 'running' AND v.visits_done < r.epochs * r.segments THEN r.status
        WHEN n.doing = 'visit' THEN 'training'
        WHEN n.doing IS NOT NULL THEN 'evaluating'
        WHEN v.visits_done = r.epochs * r.segments THEN 'finished'
        ELSE 'waiting'
    END AS status,
    LEAST(v.visits_done / r.segments + 1, r.epochs) AS epoch,
    r.epochs,
    v.visits_done,
    r.epochs * r.segments AS visits_total,
    n.segment,
    v.loss,
    CASE WHEN r.status = 'running' AND f.mst_key IS NULL
        THEN v.seconds_per_visit * (r.epochs * r.segments - v.visits_done) END AS seconds_left,
    f.reason AS failure,
    c.compile_params,
    c.fit_params
FROM cerebro.runs AS r
JOIN cerebro._config AS c USING (run_id)
LEFT JOIN cerebro._failure AS f ON f.run_id = c.run_id AND f.mst_key = c.mst_key
LEFT JOIN LATERAL (
    SELECT x.doing, x.segment FROM now_running AS x
    WHERE x.run_id = c.run_id AND x.mst_key = c.mst_key ORDER BY x.doing DESC LIMIT 1
) AS n ON TRUE
CROSS JOIN LATERAL (
    SELECT
        pg_catalog.count(*) AS visits_done,
        pg_catalog.avg(pg_catalog.date_part('epoch', x.ended_at - x.started_at)) AS seconds_per_visit,
        (pg_catalog.array_agg(x.loss ORDER BY x.step DESC))[1] AS loss
    FROM cerebro._visit AS x
    WHERE x.run_id = c.run_id AND x.mst_key = c.mst_key
) AS v;
COMMENT ON VIEW cerebro.progress IS 'Where each config of your runs stands now.';
COMMENT ON COLUMN cerebro.progress.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.progress.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.progress.model_id IS 'Architecture';
COMMENT ON COLUMN cerebro.progress.status IS 'waiting, training, evaluating, finished, failed, or interrupted';
COMMENT ON COLUMN cerebro.progress.epoch IS 'Epoch that it is in, counted from 1';
COMMENT ON COLUMN cerebro.progress.epochs IS 'Number of epochs asked for';
COMMENT ON COLUMN cerebro.progress.visits_done IS 'Visits that are committed';
COMMENT ON COLUMN cerebro.progress.visits_total IS 'Visits that were asked for: epochs x segments';
COMMENT ON COLUMN cerebro.progress.segment IS 'Segment that works on it at this moment';
COMMENT ON COLUMN cerebro.progress.loss IS 'Loss over its last visit';
COMMENT ON COLUMN cerebro.progress.seconds_left IS 'Time that its remaining visits take, going by those it has had';
COMMENT ON COLUMN cerebro.progress.failure IS 'Why it failed; NULL if it did not';
COMMENT ON COLUMN cerebro.progress.compile_params IS 'Compile parameters of the config';
COMMENT ON COLUMN cerebro.progress.fit_params IS 'Fit parameters of the config';

CREATE OR REPLACE VIEW cerebro.sizes WITH (security_barrier) AS
SELECT
    r.run_id,
    r.model_table,
    s.states,
    s.state_bytes,
    w.weight_bytes,
    v.visits
FROM cerebro._visible_run AS r
CROSS JOIN LATERAL (
    SELECT
        pg_catalog.count(*) AS states,
        COALESCE(pg_catalog.sum(x.bytes), 0)::bigint AS state_bytes
    FROM (
        SELECT pg_catalog.sum(pg_catalog.octet_length(y.data)) AS bytes FROM cerebro._state AS y
        WHERE y.run_id = r.run_id GROUP BY y.mst_key, y.step
    ) AS x
) AS s
CROSS JOIN LATERAL (
    SELECT COALESCE(pg_catalog.sum(pg_catalog.octet_length(x.weights)), 0)::bigint AS weight_bytes
    FROM cerebro._weights AS x WHERE x.run_id = r.run_id
) AS w
CROSS JOIN LATERAL (SELECT pg_catalog.count(*) AS visits FROM cerebro._visit AS x WHERE x.run_id = r.run_id) AS v;
COMMENT ON VIEW cerebro.sizes IS 'What your runs keep in the database besides their result tables; cerebro.forget removes it.';
COMMENT ON COLUMN cerebro.sizes.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.sizes.model_table IS 'Table that has the models';
COMMENT ON COLUMN cerebro.sizes.states IS 'States that are kept';
COMMENT ON COLUMN cerebro.sizes.state_bytes IS 'Their size in bytes';
COMMENT ON COLUMN cerebro.sizes.weight_bytes IS 'Size of the weights that the run started from';
COMMENT ON COLUMN cerebro.sizes.visits IS 'Visits in the log';

-- The last part of every install and update. Nothing of the extension is open to PUBLIC; grant_usage is the one door.

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
WHERE p.proname IN ('_boot', '_as_owner', '_array_bytes')
    OR (p.proname NOT LIKE '\_%' AND p.proname NOT IN ('grant_usage', 'revoke_usage'))
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

    -- An update may have brought functions that the roles of grant_usage do not hold yet.
    FOR role IN
        SELECT r.rolname
        FROM pg_proc AS p, aclexplode(p.proacl) AS a, pg_roles AS r
        WHERE p.oid = 'cerebro._boot()'::regprocedure AND r.oid = a.grantee AND a.grantee <> p.proowner
    LOOP
        PERFORM cerebro.grant_usage(role);
    END LOOP;
END
$$;
