-- A row as JSON: PL/Python takes no record and no polymorphic type.
CREATE OR REPLACE FUNCTION cerebro._predict_row(
    model regclass,
    "row" text,
    mst_key integer,
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision,
    OUT probabilities jsonb
) RETURNS record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 1000
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].predict_row(model, row, mst_key)
$$;
COMMENT ON FUNCTION cerebro._predict_row(regclass, text, integer) IS
'Internal: predicts one row that is given as JSON.';
