CREATE OR REPLACE FUNCTION cerebro.load_top_k_accuracy_function(
    object_table varchar,
    k integer,
    search_path text DEFAULT cerebro._reach_segments(pg_catalog.current_setting('search_path'))
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].function("load_top_k_accuracy_function", object_table, k, search_path)
$$;
COMMENT ON FUNCTION cerebro.load_top_k_accuracy_function IS
'Lists the metric top_<k>_accuracy, which comes with cerebro, in an object table, which is created if it does not exist.';
