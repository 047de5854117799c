CREATE OR REPLACE FUNCTION cerebro.check(
    model varchar,
    source_table varchar,
    mst_key integer DEFAULT NULL,
    thresholds jsonb DEFAULT NULL
) RETURNS TABLE (
    column_name text,
    measure text,
    value double precision,
    before double precision,
    threshold double precision,
    verdict text
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "check", model, source_table, mst_key, thresholds)
$$;
COMMENT ON FUNCTION cerebro.check(varchar, varchar, integer, jsonb) IS
'Compares the rows of a table, view or query with the training rows of a model, and returns one row for each finding: for each column the stability index, and the shares of NULL, of unseen values and of numbers outside the range; for the predictions the stability index; for rows that have a label the metrics, beside those of the validation rows when the model was made. verdict is ok, warn (from half of the threshold on) or alarm; differences that chance can explain are subtracted first. thresholds is a JSON object such as {"stability": 0.2, "age": {"nulls": 0.5}}. If the caller may manage a registered model, the check is kept in cerebro.model_health.';
