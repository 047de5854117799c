CREATE OR REPLACE FUNCTION cerebro.convert_bytea_to_smallint_array(var bytea) RETURNS smallint[]
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].bytes_to_array(var, "<i2")
$$;
COMMENT ON FUNCTION cerebro.convert_bytea_to_smallint_array(bytea) IS
'Converts the one-hot labels of a packed table, raw int16, to a flat array.';
