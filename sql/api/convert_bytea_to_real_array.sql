CREATE OR REPLACE FUNCTION cerebro.convert_bytea_to_real_array(var bytea) RETURNS real[]
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].bytes_to_array(var, "<f4")
$$;
COMMENT ON FUNCTION cerebro.convert_bytea_to_real_array(bytea) IS
'Converts the features of a packed table, raw float32, to a flat array.';
