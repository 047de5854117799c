CREATE OR REPLACE FUNCTION cerebro.enable_lora(
    keras_model_arch_table varchar,
    model_id integer,
    lora_rank integer,
    layers text[] DEFAULT NULL,
    train text[] DEFAULT NULL
) RETURNS integer
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "enable_lora", keras_model_arch_table, model_id, lora_rank, layers, train)
$$;
COMMENT ON FUNCTION cerebro.enable_lora IS
'Adds a copy of a net to its table of architectures, with the same weights and with low-rank adapters (Keras'' lora_rank) on the layers named in layers: Dense, EinsumDense, Embedding or Conv; * stands for any letters. By default all layers that can have an adapter get one, except those that give the outputs. The layers named in train are trained whole; by default these are the layers that give the outputs. All other layers are frozen. Returns the new model_id.';
