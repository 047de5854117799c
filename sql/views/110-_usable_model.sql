CREATE OR REPLACE VIEW cerebro._usable_model WITH (security_barrier) AS
-- OFFSET 0 keeps conditions of a user's out of the inner query: EXPLAIN ANALYZE would tell how many rows they find there.
SELECT m.* FROM (
    SELECT
        x.name,
        o.role AS owner,
        x.at,
        -- What nobody owns is superusers', who have the rights of the first one, role 10.
        CASE WHEN pg_catalog.pg_has_role(COALESCE(o.role, 10::oid), 'USAGE') THEN 'manage' ELSE g.privilege END AS privilege
    FROM cerebro._model AS x
    LEFT JOIN cerebro._model_owner AS o ON o.name = x.name
    LEFT JOIN (
        SELECT
            y.name,
            (ARRAY['predict', 'read', 'manage'])[pg_catalog.max(
                CASE y.privilege WHEN 'manage' THEN 3 WHEN 'read' THEN 2 ELSE 1 END)] AS privilege
        FROM cerebro._model_grant AS y
        WHERE y.role = 0::oid OR pg_catalog.pg_has_role(y.role, 'USAGE')
        GROUP BY y.name
    ) AS g ON g.name = x.name
    WHERE pg_catalog.pg_has_role(COALESCE(o.role, 10::oid), 'USAGE') OR g.privilege IS NOT NULL
    OFFSET 0
) AS m;
COMMENT ON VIEW cerebro._usable_model IS 'Internal: the registered models that the current role may use, and how far.';
