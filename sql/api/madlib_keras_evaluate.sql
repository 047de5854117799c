CREATE OR REPLACE FUNCTION cerebro.madlib_keras_evaluate(
    model_table varchar,
    test_table varchar,
    output_table varchar,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("madlib_evaluate", *args)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_evaluate IS
'Computes the loss and the metrics of a trained model on all rows of a packed table. mst_key selects one of several models; without it the best one is evaluated. The rows must be packed in the same way as the training rows.';
