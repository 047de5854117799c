-- A row as JSON: PL/Python takes no record and no polymorphic type. The table comes by its number, since a regclass would be
-- looked up and written out for each row. Without a SET clause, which costs as much as a small net; the entry sets the
-- search_path where it runs statements.
CREATE OR REPLACE FUNCTION cerebro._predict_row(
    model oid,
    "row" text,
    mst_key integer,
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision,
    OUT probabilities jsonb
) RETURNS record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 1000 AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_row(model, row, mst_key)
$$;
COMMENT ON FUNCTION cerebro._predict_row(oid, text, integer) IS
'Internal: predicts one row that is given as JSON.';

CREATE OR REPLACE FUNCTION cerebro._predict_row(
    model text,
    "row" text,
    mst_key integer,
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision,
    OUT probabilities jsonb
) RETURNS record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 1000 AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_row(model, row, mst_key)
$$;
COMMENT ON FUNCTION cerebro._predict_row(text, text, integer) IS
'Internal: predicts one row that is given as JSON, by any model reference.';
