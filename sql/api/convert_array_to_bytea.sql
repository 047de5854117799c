CREATE OR REPLACE FUNCTION cerebro.convert_array_to_bytea(var real[]) RETURNS bytea
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].array_to_bytes(var, "<f4")
$$;
COMMENT ON FUNCTION cerebro.convert_array_to_bytea(real[]) IS
'Converts an array to raw little-endian float32, the form of features in a packed table.';

CREATE OR REPLACE FUNCTION cerebro.convert_array_to_bytea(var smallint[]) RETURNS bytea
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].array_to_bytes(var, "<i2")
$$;
COMMENT ON FUNCTION cerebro.convert_array_to_bytea(smallint[]) IS
'Converts an array to raw little-endian int16, the form of one-hot labels in a packed table.';
