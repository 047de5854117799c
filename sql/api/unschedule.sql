CREATE OR REPLACE FUNCTION cerebro.unschedule(
    name text,
    alias text DEFAULT 'default'
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("unschedule", name, alias)
$$;
COMMENT ON FUNCTION cerebro.unschedule(text, text) IS
'Ends the schedule by which a registered model is trained again. A run that is under way is not stopped, and cerebro.schedule_runs keeps what the runs did.';
