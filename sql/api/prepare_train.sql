CREATE OR REPLACE FUNCTION cerebro.prepare_train(
    source_table varchar,
    target text,
    name text DEFAULT NULL,
    budget interval DEFAULT '1 minute',
    options jsonb DEFAULT NULL
) RETURNS jsonb
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "prepare_train", source_table, target, name, budget, options)
$$;
COMMENT ON FUNCTION cerebro.prepare_train(varchar, text, text, interval, jsonb) IS
'Does what cerebro.train does before its search: it packs the rows and makes the nets. It returns the arguments of madlib_automl for the search. When the tables are committed, the search can train on all segments at once and in the background. The arguments are those of cerebro.train.';
