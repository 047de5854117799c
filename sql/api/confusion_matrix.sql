CREATE OR REPLACE FUNCTION cerebro.confusion_matrix(
    model_table text,
    packed_table text,
    mst_key integer DEFAULT NULL
) RETURNS TABLE (label text, predicted text, "rows" bigint)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "confusion_matrix", model_table, packed_table, mst_key)
$$;
COMMENT ON FUNCTION cerebro.confusion_matrix(text, text, integer) IS
'Counts the rows of a packed table by their label and by the class that a model predicts for them: one row for each pair that occurs. Name the validation table, or the table that the model trained on. Without mst_key the best config answers.';
