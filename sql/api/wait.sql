CREATE OR REPLACE FUNCTION cerebro.wait(
    run_id bigint,
    timeout interval DEFAULT NULL
) RETURNS text
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].wait(run_id, timeout)
$$;
COMMENT ON FUNCTION cerebro.wait IS
'Waits until a run is over or the time is up, and returns its status: finished, failed or interrupted, or running or paused if the time is up.';
