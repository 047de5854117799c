CREATE OR REPLACE FUNCTION cerebro.stop_config(
    run_id bigint,
    mst_key integer
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("stop_config", run_id, mst_key)
$$;
COMMENT ON FUNCTION cerebro.stop_config IS
'Stops a config of one of your running runs: it gets no more visits. Its model is the one after its last whole epoch.';
