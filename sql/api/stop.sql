CREATE OR REPLACE FUNCTION cerebro.stop(
    run_id bigint,
    force boolean DEFAULT FALSE
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("stop", run_id, force)
$$;
COMMENT ON FUNCTION cerebro.stop IS
'Ends one of your running runs early and in good order: its result tables have the models that its configs have reached. With force it ends the sessions of the run at once, even while they wait. The run is then interrupted, and can be resumed.';
