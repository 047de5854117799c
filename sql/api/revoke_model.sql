CREATE OR REPLACE FUNCTION cerebro.revoke_model(
    name text,
    role name
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("revoke_model", *args)
$$;
COMMENT ON FUNCTION cerebro.revoke_model IS
'Takes back what grant_model granted a role on a registered model. This takes effect for every statement that begins afterwards, also in open sessions.';
