CREATE OR REPLACE FUNCTION cerebro.last_run() RETURNS bigint
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].last_run()
$$;
COMMENT ON FUNCTION cerebro.last_run() IS
'Returns the number of the newest run that you began in this session, as currval does for a sequence.';
