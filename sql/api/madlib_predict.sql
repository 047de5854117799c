CREATE OR REPLACE FUNCTION cerebro.madlib_predict(
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
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_predict(
    varchar, varchar, varchar, varchar, varchar, varchar, boolean, integer
) IS
'The same as madlib_keras_predict.';

CREATE OR REPLACE FUNCTION cerebro.madlib_predict(
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
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_predict(
    varchar, varchar, varchar, varchar, varchar, integer, boolean, integer
) IS
'The same as madlib_keras_predict. Here pred_type is a number k: the result has the k most probable classes of each row.';

CREATE OR REPLACE FUNCTION cerebro.madlib_predict(
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
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict(
    model_table, mst_key, test_table, id_col, independent_varname, output_table, pred_type, use_gpus)
$$;
COMMENT ON FUNCTION cerebro.madlib_predict(
    varchar, varchar, varchar, varchar, varchar, double precision, boolean, integer
) IS
'The same as madlib_keras_predict. Here pred_type is a probability p, from 0 to below 1: the result has the classes whose probability is greater than p.';
