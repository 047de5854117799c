CREATE OR REPLACE FUNCTION cerebro.clone_config(
    run_id bigint,
    mst_key integer,
    compile_params varchar DEFAULT NULL,
    fit_params varchar DEFAULT NULL,
    with_state boolean DEFAULT TRUE
) RETURNS integer
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("clone_config", *args)
$$;
COMMENT ON FUNCTION cerebro.clone_config IS
'Adds a copy of a config to one of your running runs. The copy has the architecture of the original, its parameters unless you give others, and its state after its last whole epoch unless with_state is false. In a run of groups it is trained on the group of the original. Returns the new key.';
