CREATE OR REPLACE FUNCTION cerebro.importance(
    model varchar,
    source_table varchar,
    mst_key integer DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS TABLE (
    column_name text,
    importance double precision,
    stddev double precision,
    low double precision,
    high double precision
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "importance", model, source_table, mst_key, options)
$$;
COMMENT ON FUNCTION cerebro.importance(varchar, varchar, integer, jsonb) IS
'Measures how much each input column is worth to a model. It shuffles the values of the column among the rows of a table or view that has the label: importance is by how much the metric gets worse, as the mean of several repetitions, and stddev is their standard deviation. The true value lies between low and high in 95 of 100 cases. Without mst_key the best config answers. The options are repeats (5), rows (5000, chosen at random), seed, metric (as for cerebro.ensemble; without it, that of cerebro.train) and together, lists of columns that are shuffled as one.';
