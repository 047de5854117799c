CREATE OR REPLACE FUNCTION cerebro.unregister_function(
    name text
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("unregister_function", name)
$$;
COMMENT ON FUNCTION cerebro.unregister_function IS
'Ends all versions of a registered function and the grants on it. Runs that use it cannot be resumed until the same source is registered again. Only a superuser may call it.';
