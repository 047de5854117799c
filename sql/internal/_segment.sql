CREATE OR REPLACE FUNCTION cerebro._segment(command text, request text) RETURNS text
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].segment(command, request)
$$;
COMMENT ON FUNCTION cerebro._segment(text, text) IS
'Internal: what a segment session does, a visit for example; request and answer are JSON. Granted to nobody: segment sessions run as the owner.';
