CREATE OR REPLACE FUNCTION cerebro.propagate(
    nodes varchar,
    edges varchar,
    output_table varchar,
    id varchar,
    source varchar,
    target varchar,
    features text [],
    hops integer DEFAULT 2,
    aggregate text DEFAULT 'mean',
    weight varchar DEFAULT NULL,
    teleport double precision DEFAULT 0,
    kind varchar DEFAULT NULL
) RETURNS bigint
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "propagate",
    nodes, edges, output_table, id, source, target, features, hops, aggregate, weight, teleport, kind)
$$;
COMMENT ON FUNCTION cerebro.propagate(
    varchar, varchar, varchar, varchar, varchar, varchar, text [], integer, text, varchar, double precision,
    varchar
) IS
'Creates a table of nodes with what the nodes around each one have: the columns of nodes, and for each feature x (a number or an array of numbers) the columns x_1, x_2 … of as many hops. A hop goes along the edges from source to target. aggregate is ''mean'' (the weighted mean over the edges that reach a node, 0 if none does), ''sum'', or ''symmetric'' (an edge leads both ways, each node has an edge to itself, and sums are divided by the square roots of the degrees of both ends). weight is a column of edges; without it, each edge counts as 1. teleport is the share of a node''s own features that each hop keeps, from 0 to below 1. kind is a column of edges: each of its values gets columns of its own, x_cites_1, x_cites_2 …. Edges whose ends are no nodes are left out, and a NOTICE counts them. cerebro.refresh_propagation brings the table up to date, by output_table_summary and output_table_nodes, which are created beside it. Returns the number of nodes.';
