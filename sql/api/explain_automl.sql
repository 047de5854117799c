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
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("explain_automl", *args)
$$;
COMMENT ON FUNCTION cerebro.explain_automl IS
'Shows the plan of madlib_automl with these arguments. What a search trains depends on its results, so the search is simulated with invented results; the range covers them. The plan says how long the search would take, as a range, and why: compiling, reading, training, writing and measuring for each kind of config, waiting segments, memory, bytes of states and of the log, and what would be cheaper. Estimates rest on what earlier runs on this server have measured. format is text or json. With probe, a few mini-batches of each kind of config are timed first, on invented rows. what_if is a JSON object with other facts to assume: rows, segments, threads, backend or epochs. Nothing is written, and no session is opened.';
