CREATE OR REPLACE FUNCTION cerebro.delete_keras_model(
    keras_model_arch_table varchar,
    model_id integer,
    search_path text DEFAULT cerebro._reach_segments(pg_catalog.current_setting('search_path'))
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].delete_keras_model(keras_model_arch_table, model_id, search_path)
$$;
COMMENT ON FUNCTION cerebro.delete_keras_model IS
'Removes an architecture from its table, and drops the table with its last row.';
