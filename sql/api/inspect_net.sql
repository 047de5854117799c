CREATE OR REPLACE FUNCTION cerebro.inspect_net(
    model varchar,
    source_table varchar,
    mst_key integer DEFAULT NULL
) RETURNS TABLE (
    layer text,
    kind text,
    units bigint,
    weights double precision,
    gradient double precision,
    dead double precision,
    saturated double precision,
    verdict text
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "inspect_net", model, source_table, mst_key)
$$;
COMMENT ON FUNCTION cerebro.inspect_net(varchar, varchar, integer) IS
'Examines a net on the rows of a table or view that has the label, at most 2000 of them. It returns a row for each layer: the quadratic means of its weights and of the gradients of the loss, the share of units that are 0 for every row (dead) or at an end of their range for nearly all rows (saturated), and a verdict: ok, or what is wrong. Columns that change no answer come last. For a registered model it requires the right read. Without mst_key it takes the best config.';
