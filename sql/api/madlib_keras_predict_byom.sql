CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict_byom(
    model_arch_table varchar,
    model_id integer,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type varchar DEFAULT 'prob',
    use_gpus boolean DEFAULT FALSE,
    class_values text[] DEFAULT NULL,
    normalizing_const double precision DEFAULT NULL,
    dependent_count integer DEFAULT 1,
    features jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "madlib_keras_predict_byom",
    model_arch_table, model_id, (class_values, normalizing_const, dependent_count, features),
    test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict_byom(
    varchar, integer, varchar, varchar, varchar, varchar, varchar, boolean, text[], double precision, integer, jsonb
) IS
'Predicts the rows of a table with your own model, an architecture that was stored with its weights, and writes what madlib_keras_predict writes. class_values names the classes (one list for each output, dependent_count lists in all); without it they are numbered from 0. Without class_values, a model with a single output unit and no sigmoid predicts numbers. If the model was trained on columns, features is the feature_specification in its summary: rows are then prepared like the training rows, and columns are found by name.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict_byom(
    model_arch_table varchar,
    model_id integer,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type integer,
    use_gpus boolean DEFAULT FALSE,
    class_values text[] DEFAULT NULL,
    normalizing_const double precision DEFAULT NULL,
    dependent_count integer DEFAULT 1,
    features jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "madlib_keras_predict_byom",
    model_arch_table, model_id, (class_values, normalizing_const, dependent_count, features),
    test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict_byom(
    varchar, integer, varchar, varchar, varchar, varchar, integer, boolean, text[], double precision, integer, jsonb
) IS
'Predicts the rows of a table with your own model, an architecture that was stored with its weights, and writes what madlib_keras_predict writes. class_values names the classes (one list for each output, dependent_count lists in all); without it they are numbered from 0. If the model was trained on columns, features is the feature_specification in its summary: rows are then prepared like the training rows, and columns are found by name. Here pred_type is a number k: the result has the k most probable classes of each row.';

CREATE OR REPLACE FUNCTION cerebro.madlib_keras_predict_byom(
    model_arch_table varchar,
    model_id integer,
    test_table varchar,
    id_col varchar,
    independent_varname varchar,
    output_table varchar,
    pred_type double precision,
    use_gpus boolean DEFAULT FALSE,
    class_values text[] DEFAULT NULL,
    normalizing_const double precision DEFAULT NULL,
    dependent_count integer DEFAULT 1,
    features jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "madlib_keras_predict_byom",
    model_arch_table, model_id, (class_values, normalizing_const, dependent_count, features),
    test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_keras_predict_byom(
    varchar, integer, varchar, varchar, varchar, varchar, double precision, boolean, text[], double precision, integer, jsonb
) IS
'Predicts the rows of a table with your own model, an architecture that was stored with its weights, and writes what madlib_keras_predict writes. class_values names the classes (one list for each output, dependent_count lists in all); without it they are numbered from 0. If the model was trained on columns, features is the feature_specification in its summary: rows are then prepared like the training rows, and columns are found by name. Here pred_type is a probability p, from 0 to below 1: the result has the classes whose probability is greater than p.';
