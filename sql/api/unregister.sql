CREATE OR REPLACE FUNCTION cerebro.unregister(
    name text
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("unregister", *args)
$$;
COMMENT ON FUNCTION cerebro.unregister IS
'Removes a registered model with all its versions, aliases, rights, schedules and history. The owner of the model and roles with the right manage may call this function.';
