CREATE OR REPLACE FUNCTION cerebro.register(
    model_table varchar,
    name text,
    mst_key integer DEFAULT NULL,
    comment text DEFAULT NULL,
    tags jsonb DEFAULT NULL
) RETURNS integer
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("register", *args)
$$;
COMMENT ON FUNCTION cerebro.register(varchar, text, integer, text, jsonb) IS
'Registers a trained model under a name and returns the number of its version: 1, 2, and so on. Without mst_key it takes the best config of the table; of models of groups it takes the model of each group, its best or that of one config. A version never changes and stands by itself: it needs neither the table nor the run any more. All functions that predict take name@version, name@alias and name, which means name@default. The first version gets the alias default; later ones get none. Whoever registers the first version owns the model.';
