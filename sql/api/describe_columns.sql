CREATE OR REPLACE FUNCTION cerebro.describe_columns(
    source_table varchar,
    options jsonb DEFAULT NULL
) RETURNS TABLE (
    column_name text,
    type text,
    nulls bigint,
    distinct_values bigint,
    minimum text,
    maximum text,
    mean double precision,
    becomes jsonb,
    reason text
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "describe_columns", source_table, options)
$$;
COMMENT ON FUNCTION cerebro.describe_columns(varchar, jsonb) IS
'Shows what the option columns of training_preprocessor_dl would make of each column of a table or view, and why. Each column has a row with its type, the number of rows that are NULL, the number of different values (of categories and text), the range (of numbers and dates), what the column becomes (NULL if it is left out) and the reason. Options: columns, exclude.';
