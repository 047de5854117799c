CREATE OR REPLACE FUNCTION cerebro.add_configs(
    run_id bigint,
    model_selection_table varchar
) RETURNS SETOF integer
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "add_configs", run_id, model_selection_table)
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
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("add_space", *args)
$$;
COMMENT ON FUNCTION cerebro.add_configs(bigint, integer[], varchar, varchar, varchar, integer, integer) IS
'Adds configs from grids of parameters, or from a space in JSON, to one of your running runs: every combination (grid), or a given number of random ones (random). Returns their keys in the run.';
