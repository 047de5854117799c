-- Without a search_path of its own, since the query is the caller's; every name in it is qualified. Batches are made by
-- sorting and not by hashing, so that one of them at a time is in memory.
CREATE OR REPLACE FUNCTION cerebro.predict_query(
    model regclass,
    query text,
    row_type anyelement,
    mst_key integer DEFAULT NULL
) RETURNS TABLE (
    source anyelement,
    class text,
    probability double precision,
    prediction double precision
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE COST 100000
SET enable_hashagg = off AS $$
BEGIN
    RETURN QUERY EXECUTE cerebro._predict_statement($1, $2, pg_catalog.pg_typeof($3)::pg_catalog.oid, $4);
END
$$;
COMMENT ON FUNCTION cerebro.predict_query(regclass, text, anyelement, integer) IS
'Predicts all rows of a query, many at a time, and returns each row with its prediction: SELECT (p.source).id, p.class FROM cerebro.predict_query(''models'', ''SELECT * FROM customers'', NULL::customers) AS p. The third argument gives the row type of source. The columns of source are filled, and the columns of the model found, by their names. Without mst_key the best config answers.';

CREATE OR REPLACE FUNCTION cerebro.predict_query(
    model text,
    query text,
    row_type anyelement,
    mst_key integer DEFAULT NULL
) RETURNS TABLE (
    source anyelement,
    class text,
    probability double precision,
    prediction double precision
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE COST 100000
SET enable_hashagg = off AS $$
BEGIN
    RETURN QUERY EXECUTE cerebro._predict_statement($1, $2, pg_catalog.pg_typeof($3)::pg_catalog.oid, $4);
END
$$;
COMMENT ON FUNCTION cerebro.predict_query(text, text, anyelement, integer) IS
'Predicts all rows of a query, many at a time, and returns each row with its prediction. model is a model table or a registered model: name, name@alias or name@version. For example SELECT (p.source).id, p.class FROM cerebro.predict_query(''models'', ''SELECT * FROM customers'', NULL::customers) AS p. The third argument gives the row type of source. The columns of source are filled, and the columns of the model found, by their names. Without mst_key the best config answers.';
