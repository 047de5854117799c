CREATE OR REPLACE FUNCTION cerebro.delete_config(
    run_id bigint,
    mst_key integer
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("delete_config", run_id, mst_key)
$$;
COMMENT ON FUNCTION cerebro.delete_config IS
'Removes a config from one of your running runs. It gets no more visits, and the result tables leave it out.';
