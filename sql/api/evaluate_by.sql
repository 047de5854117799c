CREATE OR REPLACE FUNCTION cerebro.evaluate_by(
    model varchar,
    source_table varchar,
    by text[],
    mst_key integer DEFAULT NULL
) RETURNS TABLE (
    part jsonb,
    "rows" bigint,
    metric text,
    value double precision,
    low double precision,
    high double precision,
    worse boolean
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "evaluate_by", model, source_table, by, mst_key)
$$;
COMMENT ON FUNCTION cerebro.evaluate_by(varchar, varchar, text[], integer) IS
'Evaluates a model on parts of the rows of a table or view that has the label. It returns all metrics of all rows (part is NULL) and of each part that has the same values in the columns by, each with an interval that contains the true value in 95 of 100 cases. worse is true if a part is answered worse than all rows by more than chance makes of any of so many parts; parts of fewer than five rows never are. Without mst_key the best config answers.';
