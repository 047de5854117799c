CREATE OR REPLACE VIEW cerebro.model_versions WITH (security_barrier) AS
SELECT v.* FROM (
    SELECT
        x.name,
        x.version,
        COALESCE(a.aliases, '{}') AS aliases,
        x.comment,
        x.tags,
        CASE WHEN m.privilege <> 'predict' THEN x.metrics
            ELSE x.metrics OPERATOR(pg_catalog.#-) '{training,rows}' OPERATOR(pg_catalog.#-) '{validation,rows}'
        END AS metrics,
        CASE WHEN m.privilege <> 'predict' THEN x.compile_params END AS compile_params,
        CASE WHEN m.privilege <> 'predict' THEN x.fit_params END AS fit_params,
        CASE WHEN m.privilege <> 'predict' THEN x.lineage END AS lineage,
        x.weights_bytes,
        CASE WHEN m.privilege <> 'predict' THEN x.digest END AS digest,
        x.registered_by,
        x.at,
        m.privilege,
        x.version_id
    FROM cerebro._usable_model AS m
    JOIN cerebro._model_version AS x ON x.name = m.name
    LEFT JOIN (
        SELECT y.name, y.version, pg_catalog.array_agg(y.alias ORDER BY y.alias) AS aliases
        FROM cerebro._model_alias AS y
        GROUP BY y.name, y.version
    ) AS a ON a.name = x.name AND a.version = x.version
    OFFSET 0
) AS v;
COMMENT ON VIEW cerebro.model_versions IS 'Versions of the registered models that you may use.';
COMMENT ON COLUMN cerebro.model_versions.name IS 'Name of the model';
COMMENT ON COLUMN cerebro.model_versions.version IS 'Number of the version, counted from 1; name@version means it';
COMMENT ON COLUMN cerebro.model_versions.aliases IS 'Aliases that point at it now; name@alias means it, and name alone if one of them is default';
COMMENT ON COLUMN cerebro.model_versions.comment IS 'Comment that it was registered with';
COMMENT ON COLUMN cerebro.model_versions.tags IS 'JSON object of the tags that it was registered with';
COMMENT ON COLUMN cerebro.model_versions.metrics IS 'What the run measured, a JSON object for training and for validation: on which rows (not shown if you may only predict), the loss, and the first metric';
COMMENT ON COLUMN cerebro.model_versions.compile_params IS 'Compile parameters of its config; NULL if you may only predict';
COMMENT ON COLUMN cerebro.model_versions.fit_params IS 'Fit parameters of its config; NULL if you may only predict';
COMMENT ON COLUMN cerebro.model_versions.lineage IS 'Where it comes from: run, config, tables, seed, versions of packages; NULL if you may only predict';
COMMENT ON COLUMN cerebro.model_versions.weights_bytes IS 'Size of its weights';
COMMENT ON COLUMN cerebro.model_versions.digest IS 'SHA-256 of its weights; NULL if you may only predict';
COMMENT ON COLUMN cerebro.model_versions.registered_by IS 'Role that registered it';
COMMENT ON COLUMN cerebro.model_versions.at IS 'When it was registered';
COMMENT ON COLUMN cerebro.model_versions.privilege IS 'What you may do with the model: predict, read or manage; each includes those before it';
COMMENT ON COLUMN cerebro.model_versions.version_id IS 'Number that no other version ever gets';
