CREATE OR REPLACE FUNCTION cerebro.drop_alias(
    name text,
    alias text
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("drop_alias", *args)
$$;
COMMENT ON FUNCTION cerebro.drop_alias IS
'Removes an alias of a registered model; its versions stay. The alias default cannot be removed.';
