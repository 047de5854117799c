CREATE OR REPLACE FUNCTION cerebro.worst_rows(
    model varchar,
    source_table varchar,
    "limit" integer DEFAULT 20,
    mst_key integer DEFAULT NULL
) RETURNS TABLE (
    "row" jsonb,
    truth text,
    prediction text,
    probability double precision,
    loss double precision
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "worst_rows", model, source_table, limit, mst_key)
$$;
COMMENT ON FUNCTION cerebro.worst_rows(varchar, varchar, integer, integer) IS
'Returns the rows of a table or view that a model answers worst, with their label and the prediction. For classes, probability is that of the label, and loss is minus its logarithm. For a quantity, loss is by how much the prediction is off. row contains all columns except those of type bytea. limit is at most 10,000. Without mst_key the best config answers.';
