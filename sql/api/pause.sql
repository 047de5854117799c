CREATE OR REPLACE FUNCTION cerebro.pause(
    run_id bigint
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].ask("pause", run_id)
$$;
COMMENT ON FUNCTION cerebro.pause IS
'Pauses one of your running runs: it begins nothing more until cerebro.resume. Visits that have begun are finished.';
