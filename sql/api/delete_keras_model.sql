CREATE OR REPLACE FUNCTION cerebro.delete_keras_model(
    keras_model_arch_table varchar,
    model_id integer
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "delete_keras_model", keras_model_arch_table, model_id)
$$;
COMMENT ON FUNCTION cerebro.delete_keras_model IS
'Removes an architecture from its table, and drops the table when no row is left.';
