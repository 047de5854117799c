CREATE OR REPLACE FUNCTION cerebro.diagnose(
    OUT item text,
    OUT status text,
    OUT found text,
    OUT advice text
) RETURNS SETOF record
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("diagnose")
$$;
COMMENT ON FUNCTION cerebro.diagnose IS
'Checks whether this server is ready to train: Python packages, logins of segment sessions, connections for them, processors, memory, disk and GPUs, one row each. status is ok, note or wrong, and advice says what to do.';
