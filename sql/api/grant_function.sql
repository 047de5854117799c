CREATE OR REPLACE FUNCTION cerebro.grant_function(
    name text,
    role name
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("grant_function", name, role)
$$;
COMMENT ON FUNCTION cerebro.grant_function IS
'Lets a role name a registered function in configs and architectures. The role public means every role. Only a superuser may call it.';
