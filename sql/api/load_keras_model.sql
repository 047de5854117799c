CREATE OR REPLACE FUNCTION cerebro.load_keras_model(
    keras_model_arch_table varchar,
    model_arch json,
    model_weights bytea DEFAULT NULL,
    name text DEFAULT NULL,
    description text DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("load_keras_model", *args)
$$;
COMMENT ON FUNCTION cerebro.load_keras_model IS
'Checks a Keras architecture (JSON of Keras 3 or Keras 2, with weights if they are given) and adds it to a table of architectures, which is created if it does not exist.';
