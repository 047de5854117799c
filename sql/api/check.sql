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
'Compares the rows of a table, a view or a query with a model''s training rows, one finding a row: of each column the stability index, and the shares of NULL, of unseen values and of numbers outside the range; of the predictions the stability index; of rows with a label the metrics, beside those of the validation rows when the model was made. verdict is ok, warn from half of the threshold on, or alarm; what chance may make is taken off first. thresholds is a JSON object such as {"stability": 0.2, "age": {"nulls": 0.5}}. Checks of a registered model by who may manage it are kept: cerebro.model_health.';
