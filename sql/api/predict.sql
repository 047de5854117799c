-- STABLE, since within one statement a model does not change. PARALLEL UNSAFE, since PL/Python reads through
-- subtransactions, which parallel plans do not allow. A regclass is looked up when the statement is read, as any table of
-- the caller's would be; a text when it runs, so it may be any model reference. The server takes a literal for a text.
-- Those that take a text have no SET clause, which would hide the caller's search_path and cost as much as a small net.
CREATE OR REPLACE FUNCTION cerebro.predict(
    model regclass,
    mst_key integer,
    features double precision[],
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision
) RETURNS record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 1000
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_one(model, mst_key, features)
$$;
COMMENT ON FUNCTION cerebro.predict(regclass, integer, double precision[]) IS
'Predicts one row, given as a numeric array, inside any query. The result is the most probable class with its probability, or the prediction of a model for numbers. If mst_key is NULL, the best config answers. The model stays in the session''s memory. Use it in FROM (FROM rows, cerebro.predict(''model'', 1, x)), or as (cerebro.predict(…)).class.';

CREATE OR REPLACE FUNCTION cerebro.predict(
    model text,
    mst_key integer,
    features double precision[],
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision
) RETURNS record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 1000 AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_one(model, mst_key, features)
$$;
COMMENT ON FUNCTION cerebro.predict(text, integer, double precision[]) IS
'Predicts one row, given as a numeric array, inside any query. model is a model table or a registered model: name, name@alias or name@version. The result is the most probable class with its probability, or the prediction of a model for numbers. If mst_key is NULL, the best config answers. The model stays in the session''s memory. Use it in FROM (FROM rows, cerebro.predict(''model'', 1, x)), or as (cerebro.predict(…)).class.';

CREATE OR REPLACE FUNCTION cerebro.predict(
    model regclass,
    mst_key integer,
    features bytea,
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision
) RETURNS record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 1000
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_one(model, mst_key, features)
$$;
COMMENT ON FUNCTION cerebro.predict(regclass, integer, bytea) IS
'Predicts one row, given as bytes (uint8 images), inside any query. The result is the most probable class with its probability, or the prediction of a model for numbers. If mst_key is NULL, the best config answers. The model stays in the session''s memory. Use it in FROM (FROM rows, cerebro.predict(''model'', 1, x)), or as (cerebro.predict(…)).class.';

CREATE OR REPLACE FUNCTION cerebro.predict(
    model text,
    mst_key integer,
    features bytea,
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision
) RETURNS record
LANGUAGE plpython3u STABLE PARALLEL UNSAFE COST 1000 AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].predict_one(model, mst_key, features)
$$;
COMMENT ON FUNCTION cerebro.predict(text, integer, bytea) IS
'Predicts one row, given as bytes (uint8 images), inside any query. model is a model table or a registered model: name, name@alias or name@version. The result is the most probable class with its probability, or the prediction of a model for numbers. If mst_key is NULL, the best config answers. The model stays in the session''s memory. Use it in FROM (FROM rows, cerebro.predict(''model'', 1, x)), or as (cerebro.predict(…)).class.';

-- Without a SET clause the planner sees through it; every name in it is qualified.
CREATE OR REPLACE FUNCTION cerebro.predict(
    model regclass,
    "row" anyelement,
    mst_key integer DEFAULT NULL,
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision,
    OUT probabilities jsonb
) RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE COST 1000 ROWS 1 AS $$
SELECT p.class, p.probability, p.prediction, p.probabilities
FROM cerebro._predict_row($1::pg_catalog.oid, cerebro._json($2)::pg_catalog.text, $3) AS p
$$;
COMMENT ON FUNCTION cerebro.predict(regclass, anyelement, integer) IS
'Predicts a row of a table or query inside any query: FROM customers c, cerebro.predict(''models'', c) p. The columns that the model was trained on are found by their names. Without mst_key the best config answers; with models of groups, the best one of the row''s group. A row of a group without a model gets NULL. The result is the most probable class with its probability and the probabilities of all classes, or the prediction of a model for numbers.';

-- Without a SET clause the planner sees through it; every name in it is qualified.
CREATE OR REPLACE FUNCTION cerebro.predict(
    model text,
    "row" anyelement,
    mst_key integer DEFAULT NULL,
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision,
    OUT probabilities jsonb
) RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE COST 1000 ROWS 1 AS $$
SELECT p.class, p.probability, p.prediction, p.probabilities
FROM cerebro._predict_row($1, cerebro._json($2)::pg_catalog.text, $3) AS p
$$;
COMMENT ON FUNCTION cerebro.predict(text, anyelement, integer) IS
'Predicts a row of a table or query inside any query: FROM customers c, cerebro.predict(''models'', c) p. model is a model table or a registered model: name, name@alias or name@version. The columns that the model was trained on are found by their names. Without mst_key the best config answers; with models of groups, the best one of the row''s group. A row of a group without a model gets NULL. The result is the most probable class with its probability and the probabilities of all classes, or the prediction of a model for numbers.';
