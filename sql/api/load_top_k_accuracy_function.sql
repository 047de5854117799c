CREATE OR REPLACE FUNCTION cerebro.load_top_k_accuracy_function(
    object_table varchar,
    k integer
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "load_top_k_accuracy_function", object_table, k)
$$;
COMMENT ON FUNCTION cerebro.load_top_k_accuracy_function IS
'Lists the metric top_<k>_accuracy, which comes with cerebro, in an object table, which is created if it does not exist.';
