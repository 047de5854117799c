CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type varchar DEFAULT 'prob',
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "madlib_predict",
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict(
    varchar, varchar, varchar, varchar, varchar, varchar, boolean, integer
) IS
'Predicts the rows of a table (one example per row, not packed) with a trained model and writes the predictions to a new table. Its columns are the id in its own type, class_name, class_value, prob and rank. For a model that predicts numbers they are the id, class_name and prediction (a number, or an array if an output has several values). pred_type is ''prob'' for all classes, or ''response'' for the most probable class of each row (then without rank). mst_key selects the model in a table of madlib_fit_multiple_model; without it the best one predicts. With models of groups, the best model of its group predicts each row, or with mst_key the group''s model of that config.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type integer,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "madlib_predict",
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict(
    varchar, varchar, varchar, varchar, varchar, integer, boolean, integer
) IS
'Predicts the rows of a table (one example per row, not packed) with a trained model and writes the predictions to a new table. Its columns are the id in its own type, class_name, class_value, prob and rank. For a model that predicts numbers they are the id, class_name and prediction (a number, or an array if an output has several values). Here pred_type is a number k: the result has the k most probable classes of each row.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict(
    model_table varchar,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type double precision,
    use_gpus boolean DEFAULT FALSE,
    mst_key integer DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "madlib_predict",
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict(
    varchar, varchar, varchar, varchar, varchar, double precision, boolean, integer
) IS
'Predicts the rows of a table (one example per row, not packed) with a trained model and writes the predictions to a new table. Its columns are the id in its own type, class_name, class_value, prob and rank. For a model that predicts numbers they are the id, class_name and prediction (a number, or an array if an output has several values). Here pred_type is a probability p, from 0 to below 1: the result has the classes whose probability is greater than p.';
