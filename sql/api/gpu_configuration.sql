CREATE OR REPLACE FUNCTION cerebro.gpu_configuration(
    output_table text,
    source text DEFAULT 'tensorflow'
) RETURNS void
LANGUAGE plpython3u AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].gpu_configuration(output_table, source)
$$;
COMMENT ON FUNCTION cerebro.gpu_configuration IS
'Creates a table of the GPUs of the hosts that have any (hostname, gpu_descr). Both sources, tensorflow and nvidia, list what nvidia-smi finds, each in its own words. Neither loads TensorFlow.';
