CREATE OR REPLACE FUNCTION cerebro.relate(
    query text,
    output_table varchar DEFAULT NULL,
    entity varchar DEFAULT NULL,
    cutoff text DEFAULT NULL,
    depth integer DEFAULT 2,
    times jsonb DEFAULT NULL,
    windows text [] DEFAULT ARRAY['all'],
    aggregates text [] DEFAULT ARRAY['count', 'mean', 'max', 'last', 'since_last', 'distinct', 'share_of_top'],
    foreign_keys text [] DEFAULT NULL,
    omit varchar [] DEFAULT NULL,
    max_features integer DEFAULT 200,
    format text DEFAULT 'table'
) RETURNS text
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "relate", query, output_table, entity, cutoff, depth, times, windows, aggregates, foreign_keys, omit,
    max_features, format)
$$;
COMMENT ON FUNCTION cerebro.relate(
    text, varchar, varchar, text, integer, jsonb, text[], text[], text[], varchar[], integer, text
) IS
'Makes features from many tables. query gives rows about an entity: its primary key, a cut-off and, to train, a label. From entity, foreign keys lead to children and parents, up to depth steps away. The output table has the query''s columns, the columns of the entity and its parents, and aggregates of children: count, sum, mean, min, max, stddev, last, since_last, distinct and share_of_top, each in windows of time before the cut-off (an interval, or all). A child''s row counts only if its time is before the row''s cut-off: times names the column of each table, or null for a table whose rows were always there. foreign_keys adds keys that no constraint has, as orders (customer) REFERENCES customers (id); omit leaves tables out. Features that are constant, the same as another or nearly all NULL are dropped and named, and so are those beyond max_features. With format => ''sql'' nothing is made: the function returns the statement. The summary beside the table (name_summary) has the recipe, which a model that is trained on the table keeps, and the statement.';
