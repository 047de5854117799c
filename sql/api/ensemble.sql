CREATE OR REPLACE FUNCTION cerebro.ensemble(
    model_table varchar,
    output_table varchar,
    size integer DEFAULT 25,
    metric text DEFAULT NULL,
    packed_table varchar DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS TABLE (
    mst_key integer,
    weight double precision
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "ensemble", model_table, output_table, size, metric, packed_table, options)
$$;
COMMENT ON FUNCTION cerebro.ensemble(varchar, varchar, integer, text, varchar, jsonb) IS
'Joins models of a table to one net that answers with their weighted mean. The rows of packed_table (by default the validation table of the run) choose: one model after the other, each the one that improves the mean most; a model may be chosen several times. size is the number of rounds, metric what is to improve: logloss (the default), accuracy, auc, f1 or balanced_accuracy for classes, rmse (the default), mae or r2 for a quantity. With logloss, the ensemble gets a temperature, by which the logarithms of its probabilities are divided, if that helps rows that did not choose it. A NOTICE has the metric of the ensemble, as each half of the rows measures what the other half chose. Creates the tables output_table and output_table_summary, as madlib_fit does, so all functions that predict take it. The option folds (as in training_preprocessor_dl) trains the best configs again before that, without each fold of all rows of the source table, for max_seconds at most: each row then chooses by the answers of models that have not seen it, and the ensemble is the mean of all these models. Of a table of models by fold, as madlib_fit_multiple_model leaves it with cross_validate => {"models": true}, each row is answered in the same way. Models of groups are chosen by the rows of all groups together, and each group answers with the mean of its own models; the tables are then those of a run of one config. Returns the models with their weights.';
