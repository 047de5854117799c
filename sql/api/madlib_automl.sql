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
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].automl(source_table, model_output_table, model_arch_table, model_selection_table, model_id_list, compile_params_grid, fit_params_grid, automl_method, automl_params, random_state, object_table, use_gpus, validation_table, metrics_compute_frequency, name, description, use_caching, options)
$$;
COMMENT ON FUNCTION cerebro.madlib_automl IS
'The same as madlib_keras_automl.';
