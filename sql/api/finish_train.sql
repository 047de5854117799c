CREATE OR REPLACE FUNCTION cerebro.finish_train(
    name text
) RETURNS TABLE (
    mst_key integer,
    net text,
    parameters text,
    metric text,
    value double precision,
    loss double precision,
    best boolean,
    rmse double precision,
    mae double precision,
    r2 double precision
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "finish_train", name)
$$;
COMMENT ON FUNCTION cerebro.finish_train(text) IS
'Does what cerebro.train does after its search, for tables of cerebro.prepare_train: it joins the best nets to name_ensemble, on a small table after training them in folds of all rows. A NOTICE tells how well the ensemble answers rows that did not choose it. It returns the leaderboard, as cerebro.train does.';
