CREATE OR REPLACE FUNCTION cerebro._segment(command text, request text) RETURNS text
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].segment(command, request)
$$;
COMMENT ON FUNCTION cerebro._segment(text, text) IS
'Internal: what a segment session does, a visit for example; request and answer are JSON. Granted to nobody: segment sessions run as the owner.';
