CREATE OR REPLACE FUNCTION cerebro.show_net(
    keras_model_arch_table varchar,
    model_id integer DEFAULT NULL
) RETURNS TABLE (
    layer text,
    class text,
    shape integer[],
    parameters bigint,
    inputs text[]
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "show_net", keras_model_arch_table, model_id)
$$;
COMMENT ON FUNCTION cerebro.show_net(varchar, integer) IS
'Shows a net layer by layer: name, class, shape of the output for one row, number of parameters, and (in a functional model) the layers whose outputs it takes. The net is one of a table of architectures, by its number, or that of a registered model: cerebro.show_net(''name@version'').';
