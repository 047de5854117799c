CREATE OR REPLACE FUNCTION cerebro.gpu_configuration(
    output_table text,
    source text DEFAULT 'tensorflow',
    search_path text DEFAULT pg_catalog.current_setting('search_path')
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].gpu_configuration(output_table, source, search_path)
$$;
COMMENT ON FUNCTION cerebro.gpu_configuration IS
'Creates a table of the GPUs of the hosts that have any (hostname, gpu_descr). Both sources, tensorflow and nvidia, list what nvidia-smi finds, each in its own words. Neither loads TensorFlow.';
