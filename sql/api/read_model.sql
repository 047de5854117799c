CREATE OR REPLACE FUNCTION cerebro.read_model(
    model text
) RETURNS TABLE (
    reference text,
    model_arch json,
    model_weights bytea,
    compile_params text,
    fit_params text,
    about jsonb,
    features jsonb
)
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("read_model", model)
$$;
COMMENT ON FUNCTION cerebro.read_model IS
'Returns what a version of a registered model contains: the net as Keras'' JSON, its weights as load_keras_model takes them, the parameters of its config, the inputs, outputs and class values, and the feature specification of columns that were packed as they are. For models of groups it returns a row for each group; about says which. It requires the right read on the model.';
