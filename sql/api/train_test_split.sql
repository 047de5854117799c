CREATE OR REPLACE FUNCTION cerebro.train_test_split(
    source_table text,
    output_table text,
    train_proportion double precision,
    test_proportion double precision DEFAULT NULL,
    grouping_cols text DEFAULT NULL,
    target_cols text DEFAULT NULL,
    with_replacement boolean DEFAULT FALSE,
    separate_output_tables boolean DEFAULT FALSE,
    options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "train_test_split",
    source_table, output_table, train_proportion, test_proportion, grouping_cols, target_cols, with_replacement,
    separate_output_tables, options)
$$;
COMMENT ON FUNCTION cerebro.train_test_split IS
'Splits the rows of a table at random into training rows and test rows. It creates one table with a column split (1 for training, 0 for test), or two tables, <output_table>_train and <output_table>_test. With grouping_cols each group is split in these proportions. Options: seed; the same rows with the same seed are split in the same way.';
