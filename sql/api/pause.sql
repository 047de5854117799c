CREATE OR REPLACE FUNCTION cerebro.pause(
    run_id bigint
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("pause", run_id)
$$;
COMMENT ON FUNCTION cerebro.pause IS
'Pauses one of your running runs: nothing new begins until cerebro.resume. Visits that have begun are finished.';
