CREATE OR REPLACE FUNCTION cerebro.resume_config(
    run_id bigint,
    mst_key integer
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].ask("resume_config", run_id, mst_key)
$$;
COMMENT ON FUNCTION cerebro.resume_config IS
'Continues a config that was stopped, in one of your running runs.';
