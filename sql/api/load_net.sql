CREATE OR REPLACE FUNCTION cerebro.load_net(
    keras_model_arch_table varchar,
    packed_table varchar,
    net text,
    params jsonb DEFAULT NULL
) RETURNS integer[]
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "load_net", keras_model_arch_table, packed_table, net, params)
$$;
COMMENT ON FUNCTION cerebro.load_net(varchar, varchar, text, jsonb) IS
'Writes a net that fits a packed table, and adds it to a table of architectures, which is created if it does not exist. net is a line of layers with Keras'' names (Dense(128, activation=''relu''), Dropout(0.2)); inputs and outputs follow from the packed table. In it, {32, 64} and {1..4} are choices and Dense(64) * 3 is three layers: each combination gives a net. Or net is the name of a starting point: linear, tabular, tabm, realmlp, graph, text, image, series, nlinear, dlinear, nhits. params are the parameters of a starting point (width, depth, dropout, activation; of tabm also members, pieces, embedding; of realmlp also frequencies, embedding, spread), and of all nets target_scale (standard, log or none: how a quantity is learned) and clamp (true: answers stay within the values of the training rows); lists give one net for each combination. With base (the model_id of a net with weights in the same table) and feature_layer (a layer of it, or a list of layers), a line of layers is put on each of these layers; all up to them are frozen, with the weights of that net, and dropout among them is turned off. Returns the model_ids.';
