-- Without a search_path of its own, since the query is the caller's; every name in it is qualified.
CREATE OR REPLACE FUNCTION cerebro.predict_related(
    model text,
    query text
) RETURNS TABLE (
    source jsonb,
    class text,
    probability double precision,
    prediction double precision
)
LANGUAGE plpgsql PARALLEL UNSAFE COST 100000
SET enable_hashagg = off
SET jit = off AS $$
DECLARE
    made pg_catalog.text [];
BEGIN
    made := cerebro._related_statement($1, $2);
    RETURN QUERY EXECUTE made[1];
    EXECUTE made[2];
END
$$;
COMMENT ON FUNCTION cerebro.predict_related(text, text) IS
'Predicts rows with a model that was trained on a table of cerebro.relate: it makes the features of related tables again, for the rows of a query that has the entity''s key and a cut-off, and returns each row as JSON with its prediction: SELECT p.source ->> ''id'', p.class FROM cerebro.predict_related(''churn'', ''SELECT id, now() AS at FROM customers'') AS p. model is a model table or a registered model: name, name@alias or name@version. All tables are read with the caller''s rights.';
