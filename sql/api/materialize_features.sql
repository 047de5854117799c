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
return sys.modules["cerebro_plpy.session"].features("materialize", packed_table, model_arch_table, model_id, layer, output_table)
$$;
COMMENT ON FUNCTION cerebro.materialize_features(varchar, varchar, integer, varchar, varchar) IS
'Makes a packed table of what a layer of a net gives for the rows of another packed table. The layer and all before it must be frozen, or have no weights, and draw nothing at random. Buffers stand in the places of those that they were made of. Nets with these layers are trained on the new table as on the other, and compute only the rest; their models are whole. The packed table may be one of features, of an earlier layer of the same net. The result is the number of rows.';
