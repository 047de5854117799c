CREATE OR REPLACE FUNCTION cerebro.read_params(
    compile_params varchar,
    fit_params varchar
) RETURNS json
LANGUAGE plpython3u IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].read_params(compile_params, fit_params)
$$;
COMMENT ON FUNCTION cerebro.read_params IS
'Compile and fit parameters as JSON, every name in Keras'' spelling: what the text of a config means. A call is an object with name and arguments.';
