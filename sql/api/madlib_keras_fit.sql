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
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("madlib_fit", *args)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_fit IS
'Trains one architecture with one set of parameters on a packed table, and writes the model and its summary to two tables. The options are those of madlib_fit_multiple_model. On a table that was packed with group_by it trains a model for each group, and writes the tables of madlib_fit_multiple_model.';
