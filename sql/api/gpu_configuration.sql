CREATE OR REPLACE FUNCTION cerebro.gpu_configuration(
    output_table text,
    source text DEFAULT 'tensorflow'
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "gpu_configuration", output_table, source)
$$;
COMMENT ON FUNCTION cerebro.gpu_configuration IS
'Creates a table of the GPUs of the hosts that have any (hostname, gpu_descr). Both sources, tensorflow and nvidia, list what nvidia-smi finds, each in its own words. Neither loads TensorFlow.';
