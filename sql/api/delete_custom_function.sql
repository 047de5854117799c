CREATE OR REPLACE FUNCTION cerebro.delete_custom_function(
    object_table varchar,
    id integer
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "delete_custom_function", object_table, id)
$$;
COMMENT ON FUNCTION cerebro.delete_custom_function(varchar, integer) IS
'Removes a function from an object table, and drops the table when no row is left. To end the registered function, call unregister_function.';
CREATE OR REPLACE FUNCTION cerebro.delete_custom_function(
    object_table varchar,
    name text
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "delete_custom_function", object_table, name)
$$;
COMMENT ON FUNCTION cerebro.delete_custom_function(varchar, text) IS
'Removes a function from an object table, and drops the table when no row is left. To end the registered function, call unregister_function.';
