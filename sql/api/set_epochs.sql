CREATE OR REPLACE FUNCTION cerebro.set_epochs(
    run_id bigint,
    mst_key integer,
    epochs integer
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "set_epochs", run_id, mst_key, epochs)
$$;
COMMENT ON FUNCTION cerebro.set_epochs IS
'Sets the total number of epochs that a config of one of your running runs trains.';
