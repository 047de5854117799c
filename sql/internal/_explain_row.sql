-- A row as JSON: PL/Python takes no record and no polymorphic type. Without a SET clause, which would hide the caller's
-- search_path.
CREATE OR REPLACE FUNCTION cerebro._explain_row(
    model text,
    "row" text,
    top integer,
    mst_key integer
) RETURNS TABLE (
    class text,
    probability double precision,
    prediction double precision,
    score double precision,
    baseline double precision,
    column_name text,
    value text,
    contribution double precision,
    approximation_error double precision,
    map bytea
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 10000 ROWS 5 AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].explain_row(model, row, top, mst_key)
$$;
COMMENT ON FUNCTION cerebro._explain_row(text, text, integer, integer) IS
'Internal: explains the prediction for one row that is given as JSON.';
