CREATE OR REPLACE FUNCTION cerebro.validation_preprocessor_dl(
    source_table varchar,
    output_table varchar,
    dependent_varname varchar,
    independent_varname varchar,
    training_preprocessor_table varchar,
    buffer_size integer DEFAULT NULL,
    distribution_rules text DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "validation_preprocessor_dl",
    source_table, output_table, dependent_varname, independent_varname, training_preprocessor_table, buffer_size,
    distribution_rules, options)
$$;
COMMENT ON FUNCTION cerebro.validation_preprocessor_dl(
    varchar, varchar, varchar, varchar, varchar, integer, text, jsonb
) IS
'Packs a table for validation in the same way as its training table: with the same normalizing constant, class values, segments and seed. Options: memory_mb.';
