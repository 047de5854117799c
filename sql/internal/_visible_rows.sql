CREATE OR REPLACE FUNCTION cerebro._visible_rows(wanted text) RETURNS SETOF json
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "_visible_rows", wanted)
$$;
COMMENT ON FUNCTION cerebro._visible_rows(text) IS
'Internal: the visits, evaluations or states of the runs that the current role may know of, from all workers of a Citus cluster.';
