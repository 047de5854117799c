CREATE OR REPLACE FUNCTION cerebro.train(
    source_table varchar,
    target text,
    name text DEFAULT NULL,
    budget interval DEFAULT '1 minute',
    options jsonb DEFAULT NULL
) RETURNS TABLE (
    mst_key integer,
    net text,
    parameters text,
    metric text,
    value double precision,
    loss double precision,
    best boolean,
    rmse double precision,
    mae double precision,
    r2 double precision
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "train", source_table, target, name, budget, options)
$$;
COMMENT ON FUNCTION cerebro.train(varchar, text, text, interval, jsonb) IS
'Trains nets on the rows of a table in one call: it looks at the columns, leaves keys out, holds rows out, packs, chooses nets that suit the inputs, and searches with ASHA within the budget. It creates the usual tables (name, name_info, name_summary, name_packed, name_packed_validation, name_nets, name_best, name_ensemble), and NOTICEs show the statements that would do the same by hand. It returns the configs, the best first, each with the deciding metric and its value, for a quantity also with rmse, mae and r2; the last row, without mst_key, is the best answer that is the same for all rows. After it, cerebro.predict(name, row) works. Options: columns, exclude, also_categories (true unless given), validation, weight, segments, task (as in training_preprocessor_dl), nets (starting points or lines of layers), target_scale (standard, log or none), clamp (true: answers stay within the values of the training rows), configs, epochs, metric (what decides: logloss, accuracy, auc, f1 or balanced_accuracy for classes, rmse, mae or r2 for a quantity), backend, seed, experience (true: the best configs of your earlier searches on like tables come first), class_weight (balanced: each class counts the same, however rare), single (without an ensemble), folds (how the rows of a small table are folded for the ensemble, as in training_preprocessor_dl; or false). A NOTICE tells how well the ensemble and the best config answer held-out rows that did not choose them, beside one answer for all rows.';
