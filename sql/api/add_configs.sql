CREATE OR REPLACE FUNCTION cerebro.add_configs(
    run_id bigint,
    model_selection_table varchar,
    search_path text DEFAULT cerebro._reach_segments(pg_catalog.current_setting('search_path'))
) RETURNS SETOF integer
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].bring_in("add_configs", run_id, model_selection_table, search_path)
$$;
COMMENT ON FUNCTION cerebro.add_configs(bigint, varchar, text) IS
'Adds the configs of a model selection table to one of your running runs and returns their keys in the run.';
CREATE OR REPLACE FUNCTION cerebro.add_configs(
    run_id bigint,
    model_id_list integer[],
    compile_params_grid varchar,
    fit_params_grid varchar,
    search_type varchar DEFAULT 'grid',
    num_configs integer DEFAULT NULL,
    random_state integer DEFAULT NULL,
    search_path text DEFAULT cerebro._reach_segments(pg_catalog.current_setting('search_path'))
) RETURNS SETOF integer
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].bring_in("add_space", run_id, model_id_list, compile_params_grid, fit_params_grid, search_type, num_configs, random_state, search_path)
$$;
COMMENT ON FUNCTION cerebro.add_configs(bigint, integer[], varchar, varchar, varchar, integer, integer, text) IS
'Adds configs from grids of parameters, or from a space in JSON, to one of your running runs: every combination (grid), or a given number of random ones (random). Returns their keys in the run.';
