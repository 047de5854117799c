CREATE OR REPLACE FUNCTION cerebro.convert_bytea_to_real_array(var bytea) RETURNS real[]
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].bytes_to_array(var, "<f4")
$$;
COMMENT ON FUNCTION cerebro.convert_bytea_to_real_array(bytea) IS
'Converts the features of a packed table, raw float32, to a flat array.';
