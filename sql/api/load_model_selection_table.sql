CREATE OR REPLACE FUNCTION cerebro.load_model_selection_table(
    model_arch_table varchar,
    model_selection_table varchar,
    model_id_list integer[],
    compile_params_list varchar[],
    fit_params_list varchar[],
    object_table varchar DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "load_model_selection_table", *args)
$$;
COMMENT ON FUNCTION cerebro.load_model_selection_table IS
'Creates a model selection table: one config for every combination of architectures, compile parameters and fit parameters.';
