CREATE OR REPLACE FUNCTION cerebro.update_custom_function_table(
    object_table varchar
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "update_custom_function_table", object_table)
$$;
COMMENT ON FUNCTION cerebro.update_custom_function_table IS
'Checks an object table. An object table never becomes outdated, since nothing in it is ever unpickled.';
