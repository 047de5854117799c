CREATE OR REPLACE VIEW cerebro.models WITH (security_barrier) AS
SELECT m.* FROM (
    SELECT
        x.name,
        COALESCE(r.rolname::text, x.owner::text) AS owner,
        d.version AS default_version,
        n.versions,
        n.newest_version,
        COALESCE(a.aliases, '{}') AS aliases,
        x.at,
        x.privilege,
        CASE WHEN x.privilege = 'manage' THEN COALESCE(g.granted_to, '{}') END AS granted_to
    FROM cerebro._usable_model AS x
    LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = x.owner
    LEFT JOIN (
        SELECT v.name, pg_catalog.count(*) AS versions, pg_catalog.max(v.version) AS newest_version
        FROM cerebro._model_version AS v GROUP BY v.name
    ) AS n ON n.name = x.name
    LEFT JOIN (
        SELECT y.name, pg_catalog.jsonb_object_agg(y.alias, y.version) AS aliases
        FROM cerebro._model_alias AS y GROUP BY y.name
    ) AS a ON a.name = x.name
    LEFT JOIN (
        SELECT
            y.name,
            pg_catalog.jsonb_object_agg(
                CASE WHEN y.role = 0::oid THEN 'public' ELSE h.rolname::text END, y.privilege) AS granted_to
        FROM cerebro._model_grant AS y
        LEFT JOIN pg_catalog.pg_roles AS h ON h.oid = y.role
        WHERE y.role = 0::oid OR h.oid IS NOT NULL
        GROUP BY y.name
    ) AS g ON g.name = x.name
    LEFT JOIN cerebro._model_alias AS d ON d.name = x.name AND d.alias = 'default'
    OFFSET 0
) AS m;
COMMENT ON VIEW cerebro.models IS 'Registered models that you may use.';
COMMENT ON COLUMN cerebro.models.name IS 'Name of the model, by which functions that predict take it';
COMMENT ON COLUMN cerebro.models.owner IS 'Role that owns it; NULL if it was restored from a dump after its owner was dropped';
COMMENT ON COLUMN cerebro.models.default_version IS 'Version that the name alone means';
COMMENT ON COLUMN cerebro.models.versions IS 'How many versions there are';
COMMENT ON COLUMN cerebro.models.newest_version IS 'Highest number of a version that is there';
COMMENT ON COLUMN cerebro.models.aliases IS 'JSON object of the aliases and the versions that they point at';
COMMENT ON COLUMN cerebro.models.at IS 'When its first version was registered';
COMMENT ON COLUMN cerebro.models.privilege IS 'What you may do with it: predict, read or manage; each includes those before it';
COMMENT ON COLUMN cerebro.models.granted_to IS 'JSON object of the roles that grant_model was called for and what they may do; NULL unless you may manage it';
