CREATE OR REPLACE FUNCTION cerebro.training_preprocessor_dl(
    source_table varchar,
    output_table varchar,
    dependent_varname varchar,
    independent_varname varchar,
    buffer_size integer DEFAULT NULL,
    normalizing_const real DEFAULT 1.0,
    num_classes integer[] DEFAULT NULL,
    distribution_rules text DEFAULT NULL,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "training_preprocessor_dl",
    source_table, output_table, dependent_varname, independent_varname, buffer_size, normalizing_const,
    num_classes, distribution_rules, options)
$$;
COMMENT ON FUNCTION cerebro.training_preprocessor_dl(
    varchar, varchar, varchar, varchar, integer, real, integer[], text, jsonb
) IS
'Packs a table for training. It shuffles the rows by a seed, deals them evenly to segments and stores them in buffers of arrays. Features are divided by normalizing_const, and labels are one-hot (or numbers for regression). Options: segments, seed, shape, task (classification or regression), memory_mb, weight (the column with the weight of each row), validation (the rows to pack separately as <output_table>_validation: a share, or an object with by, after and on, or stratify), folds (their number, or an object with count and by or stratify, or with column: packs the rows in folds, for cross_validate), group_by (one or several columns: each config is trained on each group of rows separately; <output_table>_groups lists the groups), and columns ("auto", or what each column becomes: text, dates, categories, NULLs and images as they are) with exclude and also_categories (numbers are categories as well where the label jumps from value to value). With columns, independent_varname may be ''*''.';
