CREATE OR REPLACE FUNCTION cerebro.last_run() RETURNS bigint
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("last_run")
$$;
COMMENT ON FUNCTION cerebro.last_run() IS
'Returns the number of the newest run that you began in this session, as currval does for a sequence.';
