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
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("generate_model_configs", *args)
$$;
COMMENT ON FUNCTION cerebro.generate_model_configs IS
'Creates a model selection table, or adds to one, from grids of parameters: every combination (grid), or a given number of random ones (random).';
