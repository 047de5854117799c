CREATE OR REPLACE FUNCTION cerebro.windows(
    source_table varchar,
    output_view varchar,
    partition_by varchar,
    order_by varchar,
    columns varchar,
    length integer,
    stride integer DEFAULT NULL,
    label varchar DEFAULT NULL,
    label_from text DEFAULT 'last',
    gap interval DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "windows",
    source_table, output_view, partition_by, order_by, columns, length, stride, label, label_from, gap)
$$;
COMMENT ON FUNCTION cerebro.windows(
    varchar, varchar, varchar, varchar, varchar, integer, integer, varchar, text, interval
) IS
'Creates a view of windows over time. Each row has an array of length consecutive readings of the listed columns, from one partition. No window crosses a partition, or a gap between two readings that is longer than gap. Readings whose order_by is NULL are left out. A window begins every stride readings (by default, every length readings). label_from chooses the label of a window: that of its last reading (last), the most frequent of its readings (majority), or that of the reading after it (next). The view has the columns partition_by, starts, ends, x and label.';
