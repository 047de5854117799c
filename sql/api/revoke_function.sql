CREATE OR REPLACE FUNCTION cerebro.revoke_function(
    name text,
    role name
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("revoke_function", name, role)
$$;
COMMENT ON FUNCTION cerebro.revoke_function IS
'Takes back what grant_function gave to a role. Only a superuser may call it.';
