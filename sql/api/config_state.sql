CREATE OR REPLACE FUNCTION cerebro.config_state(
    run_id bigint,
    mst_key integer,
    OUT number integer,
    OUT name text,
    OUT kind text,
    OUT shape integer[],
    OUT dtype text,
    OUT data bytea
) RETURNS SETOF record
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "config_state", run_id, mst_key)
$$;
COMMENT ON FUNCTION cerebro.config_state IS
'Returns the newest stored state of a config of one of your runs. It has one row for each variable, in the order of Keras'' model.variables and optimizer.variables: its kind (weight, optimizer or other), shape, element type, and its values, raw and little-endian.';
