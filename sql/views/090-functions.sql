CREATE OR REPLACE VIEW cerebro.functions WITH (security_barrier) AS
-- OFFSET 0 keeps conditions of a user's out of the inner query: EXPLAIN ANALYZE would tell how many rows they find there.
SELECT f.* FROM (
    SELECT
        f.name,
        f.version,
        f.kind,
        f.source,
        f.description,
        f.higher_is_better,
        f.registered_by,
        f.at,
        f.digest,
        COALESCE(g.granted_to, '{}') AS granted_to
    FROM cerebro._function AS f
    LEFT JOIN (
        SELECT x.name, pg_catalog.max(x.version) AS version FROM cerebro._function AS x
        WHERE x.source IS NULL GROUP BY x.name
    ) AS ended ON ended.name = f.name
    LEFT JOIN (
        SELECT
            x.name,
            pg_catalog.array_agg(x.grantee ORDER BY x.grantee) AS granted_to,
            pg_catalog.bool_or(x.mine) AS usable
        FROM (
            SELECT
                y.name,
                CASE WHEN y.role = 0::oid THEN 'public' ELSE r.rolname::text END AS grantee,
                y.role = 0::oid OR pg_catalog.pg_has_role(y.role, 'USAGE') AS mine
            FROM cerebro._function_grant AS y
            LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = y.role
            WHERE y.role = 0::oid OR r.oid IS NOT NULL
        ) AS x
        GROUP BY x.name
    ) AS g ON g.name = f.name
    WHERE f.source IS NOT NULL
        AND f.version > COALESCE(ended.version, 0)
        AND (g.usable OR EXISTS (SELECT FROM pg_catalog.pg_roles AS s WHERE s.rolname = current_user AND s.rolsuper))
    OFFSET 0
) AS f;
COMMENT ON VIEW cerebro.functions IS 'Registered losses, metrics and layers that you may name in configs and architectures, each with all its versions. A superuser sees all of them.';
COMMENT ON COLUMN cerebro.functions.name IS 'Name to use in configs and architectures';
COMMENT ON COLUMN cerebro.functions.version IS 'Number of the version, counted from 1; new runs use the last one';
COMMENT ON COLUMN cerebro.functions.kind IS 'loss, metric or layer';
COMMENT ON COLUMN cerebro.functions.source IS 'Python source';
COMMENT ON COLUMN cerebro.functions.description IS 'What the function is for';
COMMENT ON COLUMN cerebro.functions.higher_is_better IS 'For a metric, whether a higher value is better; NULL if its name says it';
COMMENT ON COLUMN cerebro.functions.registered_by IS 'Superuser who registered this version';
COMMENT ON COLUMN cerebro.functions.at IS 'When this version was registered';
COMMENT ON COLUMN cerebro.functions.digest IS 'SHA-256 by which runs and models refer to this version';
COMMENT ON COLUMN cerebro.functions.granted_to IS 'Roles that may use it, public for all; superusers always may';
