CREATE OR REPLACE FUNCTION cerebro.load_custom_function(
    object_table varchar,
    object bytea,
    name text,
    description text DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("load_custom_function", *args)
$$;
COMMENT ON FUNCTION cerebro.load_custom_function IS
'Registers a loss or metric that dill has serialized, and lists it in an object table, which is created if it does not exist. Only a superuser may call it, and the server needs the package dill. To register source code, call register_function.';
