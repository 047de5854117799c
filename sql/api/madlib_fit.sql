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
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].fit(source_table, model, model_arch_table, model_id, compile_params, fit_params, num_iterations, use_gpus, validation_table, metrics_compute_frequency, warm_start, name, description, object_table, options)
$$;
COMMENT ON FUNCTION cerebro.madlib_fit IS
'The same as madlib_keras_fit.';
