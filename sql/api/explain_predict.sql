-- Without a SET clause the planner sees through it; every name in it is qualified.
CREATE OR REPLACE FUNCTION cerebro.explain_predict(
    model text,
    "row" anyelement,
    top integer DEFAULT 5,
    mst_key integer DEFAULT NULL,
    OUT class text,
    OUT probability double precision,
    OUT prediction double precision,
    OUT score double precision,
    OUT baseline double precision,
    OUT column_name text,
    OUT value text,
    OUT contribution double precision,
    OUT approximation_error double precision,
    OUT map bytea
) RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE COST 10000 ROWS 5 AS $$
SELECT
    e.class, e.probability, e.prediction, e.score, e.baseline, e.column_name, e.value, e.contribution, e.approximation_error,
    e.map
FROM cerebro._explain_row($1, cerebro._json($2)::pg_catalog.text, $3, $4) AS e
$$;
COMMENT ON FUNCTION cerebro.explain_predict(text, anyelement, integer, integer) IS
'Predicts a row of a table or query, and says how much each of its columns adds to the answer: FROM customers c, cerebro.explain_predict(''churn'', c) e. It returns a row for each of the columns that add most: as many as top says, or all if top is NULL. score is the prediction of a quantity, or the logarithm of the odds of the predicted class; baseline is the score of the mean training row. The contributions of all columns add up to score - baseline, except for the share of it that approximation_error says. map is a PNG of an image, in which red pixels speak for the answer and blue ones against it. model is a model table or a registered model: name, name@alias or name@version. Without mst_key the best config answers.';
