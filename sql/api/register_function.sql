CREATE OR REPLACE FUNCTION cerebro.register_function(
    name text,
    source text,
    kind text,
    description text DEFAULT NULL,
    higher_is_better boolean DEFAULT NULL
) RETURNS integer
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "register_function", *args)
$$;
COMMENT ON FUNCTION cerebro.register_function IS
'Stores Python source that defines a loss, a metric or a layer (the kind) with this name, and returns its version. Configs and architectures may then name it. Only a superuser may call it.';
