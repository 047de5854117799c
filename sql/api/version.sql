CREATE OR REPLACE FUNCTION cerebro.version() RETURNS text
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].version()
$$;
COMMENT ON FUNCTION cerebro.version() IS
'The versions of everything that has a part in a result: the extension, the server, Python, Keras, the engines that are installed, and the packages beside them. It loads none of them.';
