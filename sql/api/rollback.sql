CREATE OR REPLACE FUNCTION cerebro.rollback(
    name text,
    alias text DEFAULT 'default'
) RETURNS integer
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("rollback", *args)
$$;
COMMENT ON FUNCTION cerebro.rollback IS
'Makes an alias of a registered model point at the version that it pointed at before, and returns that version. Each further call goes one step further back.';
