CREATE OR REPLACE FUNCTION cerebro.drop_version(
    name text,
    version integer
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("drop_version", *args)
$$;
COMMENT ON FUNCTION cerebro.drop_version IS
'Removes a version of a registered model. It fails if an alias points at the version. The number of the version is never used again.';
