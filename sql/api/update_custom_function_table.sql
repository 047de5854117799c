CREATE OR REPLACE FUNCTION cerebro.update_custom_function_table(
    object_table varchar,
    search_path text DEFAULT cerebro._reach_segments(pg_catalog.current_setting('search_path'))
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].function("update_custom_function_table", object_table, search_path)
$$;
COMMENT ON FUNCTION cerebro.update_custom_function_table IS
'Checks an object table. An object table never becomes outdated, since nothing in it is ever unpickled.';
