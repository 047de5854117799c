CREATE OR REPLACE FUNCTION cerebro.smooth(
    model varchar,
    mst_key integer,
    nodes varchar,
    edges varchar,
    labels text,
    id varchar DEFAULT NULL,
    source varchar DEFAULT NULL,
    target varchar DEFAULT NULL,
    weight varchar DEFAULT NULL,
    correct double precision DEFAULT 0.8,
    smooth double precision DEFAULT 0.8
) RETURNS TABLE (
    node text,
    label text,
    class text,
    probability double precision
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "smooth",
    model, mst_key, nodes, edges, labels, id, source, target, weight, correct, smooth)
$$;
COMMENT ON FUNCTION cerebro.smooth(
    varchar, integer, varchar, varchar, text, varchar, varchar, varchar, varchar, double precision,
    double precision
) IS
'Predicts the classes of the nodes of a graph with a model, and mends the answers with the labels that are known (Correct and Smooth). labels is a column of nodes that has the class where it is known, and NULL elsewhere. First the errors of the model at known nodes spread along the edges and correct the others; then labels and corrected answers spread. correct and smooth are the shares that come from the nodes around, from 0 to below 1. Edges lead both ways, as with aggregate ''symmetric'' of cerebro.propagate. Without id, source and target, nodes is a table of cerebro.propagate, and they are those of its edges. model is a table of models with mst_key (or NULL for the best), or a registered model. Returns each node with its label, its class and the probability of that.';
