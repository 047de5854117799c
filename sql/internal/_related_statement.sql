-- Without a SET clause, which would hide the caller's search_path; its entry takes it.
CREATE OR REPLACE FUNCTION cerebro._related_statement(
    model text,
    query text
) RETURNS text []
LANGUAGE plpython3u PARALLEL UNSAFE AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("_related_statement", model, query)
$$;
COMMENT ON FUNCTION cerebro._related_statement(text, text) IS
'Internal: makes the features of the rows of a query; returns the statement that predicts them, and the one that removes them.';
