CREATE OR REPLACE FUNCTION cerebro.append_rows(
    packed_table varchar,
    source_table varchar,
    dependent_varname varchar DEFAULT NULL,
    independent_varname varchar DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS integer
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].prepare(
    "append", packed_table, source_table, dependent_varname, independent_varname, options)
$$;
COMMENT ON FUNCTION cerebro.append_rows(varchar, varchar, varchar, varchar, jsonb) IS
'Adds the rows of a table or view to a packed table, as its own rows were packed: the same statistics, classes, constant and seed. Buffers that are there stay as they are. The result is the packed table''s new version. Runs under way, and those that are resumed, go on with the version that they began with; new runs, warm starts among them, train on all rows. Columns are found by the names that the packed table has; give dependent_varname or independent_varname where they have others. A class that is new takes a place that num_classes has left free, else it is refused. Rows of a table in groups go to their groups; groups that are new come after the others. The view cerebro.drift says how the rows differ from those before. Options: memory_mb.';
