CREATE OR REPLACE FUNCTION cerebro.materialize_features(
    packed_table varchar,
    model_arch_table varchar,
    model_id integer,
    layer varchar,
    output_table varchar
) RETURNS bigint
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "materialize_features", packed_table, model_arch_table, model_id, layer, output_table)
$$;
COMMENT ON FUNCTION cerebro.materialize_features(varchar, varchar, integer, varchar, varchar) IS
'Creates a packed table with the outputs of a layer of a net for the rows of another packed table, and returns the number of rows. This layer and all layers before it must be frozen or have no weights, and must draw nothing at random. Each buffer has the place of the buffer that it was made from. You train nets with these layers on the new table as on the other one: a run computes only their other layers, and the models are whole. The packed table can itself hold the features of an earlier layer of the same net.';
