CREATE OR REPLACE FUNCTION cerebro.wait(
    run_id bigint,
    timeout interval DEFAULT NULL
) RETURNS text
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("wait", run_id, timeout)
$$;
COMMENT ON FUNCTION cerebro.wait IS
'Waits until a run is over or the time is up, and returns its status: finished, failed or interrupted, or running or paused if the time is up.';
