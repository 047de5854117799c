CREATE OR REPLACE FUNCTION cerebro.refresh_propagation(
    output_table varchar
) RETURNS bigint
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "refresh_propagation", output_table)
$$;
COMMENT ON FUNCTION cerebro.refresh_propagation(varchar) IS
'Brings a table of cerebro.propagate up to date with its nodes and edges. It finds new, changed and removed nodes and edges, and computes anew only the nodes that these reach. The table is then the same as one that is propagated anew. Returns the number of nodes that were computed anew; a NOTICE tells how many of them are new, and how many rows are gone.';
