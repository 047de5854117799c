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
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("madlib_automl", *args)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_automl IS
'Searches a space of configs. It writes all models, their metrics and a summary to three tables, and the best config to a model selection table. The methods are hyperband, hyperopt, asha, median, pbt and tpe. The options are those of a fit except patience, min_delta and target. On a table that was packed with group_by, it searches each group separately; with the option search "all_groups", one search decides for all groups. The option compare_by says whether configs are compared by their losses ("loss", the default) or by their first metric ("metric"). With the option rung_by "rows", asha and hyperband compare configs on a part of the rows before they compare them on all rows; num_iterations and R then count passes over the rows. The option try_first is a list of configs that come before those that are drawn. With the option experience, the best configs of your earlier searches on like tables come before all others.';
