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
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "madlib_fit_multiple_model", *args)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_fit_multiple_model IS
'Trains every config of a model selection table on a packed table by Model Hopper Parallelism, and writes the models, their metrics and a summary to three tables. The options are backend, threads, memory_mb and seed; patience, min_delta, target, max_seconds and max_visits, which end training early; restore_best, compare_by, training_metrics, max_configs, replay, order, plan, hybrid, cross_validate, epochs_per_pass, materialize, budget_mb, fuse, recompute, device_memory_mb, checkpoint_every, min_rows, min_classes, fallback, groups and background. On a table that was packed with group_by, it trains each config on each group separately; with warm_start and the option groups "changed", only on groups that have new rows.';
