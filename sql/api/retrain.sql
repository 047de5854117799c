CREATE OR REPLACE FUNCTION cerebro.retrain(
    name text,
    source varchar DEFAULT NULL,
    budget interval DEFAULT NULL,
    promote text DEFAULT 'if_better',
    alias text DEFAULT 'default',
    options jsonb DEFAULT NULL,
    OUT version integer,
    OUT promoted boolean,
    OUT previous integer,
    OUT measured text,
    OUT value double precision,
    OUT previous_value double precision,
    OUT judged_rows bigint,
    OUT reason text
) RETURNS SETOF record
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "retrain", name, source, budget, promote, alias, options)
$$;
COMMENT ON FUNCTION cerebro.retrain(text, varchar, interval, text, text, jsonb) IS
'Trains a registered model again and registers the result as its next version. Target, columns, budget and options are those of the version that alias points at, which must come from cerebro.train or cerebro.train_forecast. source has the rows; by default it is the same table as before. Both versions are compared on a tenth of the rows, chosen by their values, which trains neither: by the metric of the earlier training if that is logloss, accuracy, rmse or mae, and else by logloss for classes and rmse for a quantity. promote is if_better (the alias moves if the new version has less error by more than noise), always or never. options takes the options of cerebro.train, and append (train on the rows of the earlier sources as well) and warm_start (the net of the version goes on from its weights; nothing is searched for). A forecast takes the options of cerebro.train_forecast, and both versions are compared by their mase on the newest windows of each series, on which neither was trained. Returns the new version, whether the alias points at it now, the version that it pointed at before, what was measured, and the reason. If the function fails, nothing has changed.';
