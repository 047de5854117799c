CREATE OR REPLACE FUNCTION cerebro._as_owner() RETURNS void
LANGUAGE plpython3u SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].run_pending()
$$;
COMMENT ON FUNCTION cerebro._as_owner() IS
'Internal: runs the one piece of work that the extension has laid out in this session, with the rights of the extension''s owner; refuses when there is none.';
