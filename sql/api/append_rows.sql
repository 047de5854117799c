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
return sys.modules["cerebro_plpy.session"].call(
    "append_rows",
    packed_table, source_table, dependent_varname, independent_varname, options)
$$;
COMMENT ON FUNCTION cerebro.append_rows(varchar, varchar, varchar, varchar, jsonb) IS
'Adds the rows of a table or view to a packed table, and returns the packed table''s new version. The rows are packed like the rows before them, with the same statistics, classes, constant and seed. Existing buffers do not change. Runs that have begun keep the version that they began with, also when they are resumed; new runs and warm starts train on all rows. Columns are found by the names that the packed table has; if yours have other names, give dependent_varname and independent_varname. A new class takes a place that num_classes has left free; if there is none, it is refused. In a table in groups, rows go to their groups, and new groups come after the others. The view cerebro.drift shows how the rows differ from those before. Options: memory_mb.';
