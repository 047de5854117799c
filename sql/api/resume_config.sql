CREATE OR REPLACE FUNCTION cerebro.resume_config(
    run_id bigint,
    mst_key integer
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("resume_config", run_id, mst_key)
$$;
COMMENT ON FUNCTION cerebro.resume_config IS
'Continues a config that was stopped, in one of your running runs.';
