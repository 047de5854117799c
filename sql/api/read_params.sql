CREATE OR REPLACE FUNCTION cerebro.read_params(
    compile_params varchar,
    fit_params varchar
) RETURNS json
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].read_params(compile_params, fit_params)
$$;
COMMENT ON FUNCTION cerebro.read_params IS
'Reads the compile and fit parameters of a config from their text and returns them as JSON, with every name in Keras'' spelling. A call is an object with name and arguments.';
