-- Without a search_path of its own, since the query is the caller's.
CREATE OR REPLACE FUNCTION cerebro._fetch_rows(query text, row_type anyelement) RETURNS SETOF anyelement
LANGUAGE plpgsql STABLE PARALLEL UNSAFE AS $$
BEGIN
    RETURN QUERY EXECUTE $1;
END
$$;
COMMENT ON FUNCTION cerebro._fetch_rows(text, anyelement) IS
'Internal: the rows of a query, which have the columns of a table.';
