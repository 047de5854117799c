CREATE OR REPLACE FUNCTION cerebro.update_custom_function_table(
    object_table varchar
) RETURNS void
LANGUAGE plpython3u AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].function("update_custom_function_table", object_table)
$$;
COMMENT ON FUNCTION cerebro.update_custom_function_table IS
'Checks an object table. An object table never becomes outdated, since nothing in it is ever unpickled.';
