CREATE OR REPLACE FUNCTION cerebro.add_configs(
    run_id bigint,
    model_selection_table varchar,
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS SETOF integer
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].add_configs(run_id, model_selection_table, search_path)
$$;
COMMENT ON FUNCTION cerebro.add_configs(bigint, varchar, text) IS
'Brings the configs of a model selection table into one of your running runs; gives their keys in the run.';
