CREATE OR REPLACE FUNCTION cerebro.create_packed_table(
    output_table varchar,
    summary json
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "create_packed_table", output_table, summary)
$$;
COMMENT ON FUNCTION cerebro.create_packed_table IS
'Creates an empty packed table and its summary, for buffers that were packed elsewhere. You insert the buffers as rows. The keys of summary are the columns of <table>_summary. Class values are text, and class_value_types has their types by column.';
