CREATE OR REPLACE FUNCTION cerebro.set_alias(
    name text,
    alias text,
    version integer
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("set_alias", *args)
$$;
COMMENT ON FUNCTION cerebro.set_alias IS
'Makes an alias of a registered model point at one of its versions; an alias that does not exist is created. Every statement that begins after the commit predicts with that version, in every session. The name of a model alone means its alias default. The owner of the model and roles with the right manage may call this function.';
