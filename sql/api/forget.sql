CREATE OR REPLACE FUNCTION cerebro.forget(
    run_id bigint
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("forget", run_id)
$$;
COMMENT ON FUNCTION cerebro.forget IS
'Removes the states and log rows of one of your runs. Its result tables stay, but nothing can continue from its states any more.';
