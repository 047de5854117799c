CREATE OR REPLACE FUNCTION cerebro.version() RETURNS text
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("version")
$$;
COMMENT ON FUNCTION cerebro.version() IS
'Returns the versions of everything that can affect a result: the extension, the server, Python, Keras, the engines that are installed, and the other packages. It loads none of them.';
