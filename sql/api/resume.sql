CREATE OR REPLACE FUNCTION cerebro.resume(
    run_id bigint,
    search_path text DEFAULT cerebro._reach_segments(pg_catalog.current_setting('search_path'))
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].resume(run_id, search_path)
$$;
COMMENT ON FUNCTION cerebro.resume IS
'Continues one of your runs that was interrupted, from its last committed visits. It leaves the same tables as an undisturbed run.';
