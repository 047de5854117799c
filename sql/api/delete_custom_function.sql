CREATE OR REPLACE FUNCTION cerebro.delete_custom_function(
    object_table varchar,
    id integer,
    search_path text DEFAULT cerebro._reach_segments(pg_catalog.current_setting('search_path'))
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].function("delete_custom_function", object_table, id, search_path)
$$;
COMMENT ON FUNCTION cerebro.delete_custom_function(varchar, integer, text) IS
'Removes a function from an object table, and drops the table with its last row. To end a registered function, call unregister_function.';
CREATE OR REPLACE FUNCTION cerebro.delete_custom_function(
    object_table varchar,
    name text,
    search_path text DEFAULT cerebro._reach_segments(pg_catalog.current_setting('search_path'))
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].function("delete_custom_function", object_table, name, search_path)
$$;
COMMENT ON FUNCTION cerebro.delete_custom_function(varchar, text, text) IS
'Removes a function from an object table, and drops the table with its last row. To end a registered function, call unregister_function.';
