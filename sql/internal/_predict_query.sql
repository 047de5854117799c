-- What cerebro.predict_query goes through: the statement that it executes, and the function that this calls for each batch.
CREATE OR REPLACE FUNCTION cerebro._predict_statement(
    model regclass,
    query text,
    row_type oid,
    mst_key integer
) RETURNS text
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("predict_query", model, query, row_type, mst_key)
$$;
COMMENT ON FUNCTION cerebro._predict_statement(regclass, text, oid, integer) IS
'Internal: the statement that gives the rows of a query with their predictions.';

-- Without a SET clause, which would hide the caller's search_path; its entry takes it.
CREATE OR REPLACE FUNCTION cerebro._predict_statement(
    model text,
    query text,
    row_type oid,
    mst_key integer
) RETURNS text
LANGUAGE plpython3u STABLE PARALLEL UNSAFE AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("predict_query", model, query, row_type, mst_key)
$$;
COMMENT ON FUNCTION cerebro._predict_statement(text, text, oid, integer) IS
'Internal: the statement that gives the rows of a query with their predictions.';

CREATE OR REPLACE FUNCTION cerebro._predict_batch(
    ticket text,
    data bytea[],
    texts text[],
    rows integer,
    OUT classes text[],
    OUT probabilities double precision[],
    OUT predictions double precision[]
) RETURNS record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 100000
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_batch(ticket, data, texts, rows)
$$;
COMMENT ON FUNCTION cerebro._predict_batch(text, bytea[], text[], integer) IS
'Internal: predicts some rows of the query that is under way.';
