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
'Has an alias of a registered model point at one of its versions; a new alias is made. Every statement that begins afterwards predicts with that version, in every session. The alias default is what the name alone means. The owner of the model and roles with the right manage may call it.';
