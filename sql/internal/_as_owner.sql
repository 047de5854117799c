CREATE OR REPLACE FUNCTION cerebro._as_owner() RETURNS void
LANGUAGE plpython3u SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
GD["cerebro"].run_pending()
$$;
COMMENT ON FUNCTION cerebro._as_owner() IS
'Internal: runs the one piece of work that the extension has laid out in this session, with the rights of the extension''s owner; refuses when there is none.';
