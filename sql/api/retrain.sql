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
'Trains a registered model anew and registers the result as its next version. The recipe is that of the version that the alias points at, which must come from cerebro.train or cerebro.train_forecast: target, columns, budget and options; source, by default the same table as before, has the rows. A tenth of them, chosen by their values, trains nobody: there both versions are compared, by the metric of the recipe if it is logloss, accuracy, rmse or mae, and else by logloss for classes and rmse for a quantity. Besides options of cerebro.train, options takes append (train on the rows of the earlier sources as well) and warm_start (the net of the version goes on from its weights, its columns prepared as before; nothing is searched for). A forecast is trained by the call of cerebro.train_forecast that it comes from, with options of that, and both versions are compared by their mase on the newest windows of each series, on which neither was trained. promote is if_better (the default: the alias moves if the new version has less error by more than noise), always or never. Returns the new version, whether the alias points at it, the version it pointed at before, what was measured, and the reason. It is one transaction: an error leaves everything as it was.';
