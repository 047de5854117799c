-- The registry of models: versions that never change, the aliases that point at them, and who may use them.
CREATE SEQUENCE cerebro._version_id_seq CACHE 1;
CREATE SEQUENCE cerebro._model_event_id_seq CACHE 1;

CREATE TABLE cerebro._model (
    name text PRIMARY KEY,
    owner regrole NOT NULL,
    last_version integer NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE cerebro._model IS 'Registered models; last_version is the highest number that a version has had, dropped ones included.';

CREATE TABLE cerebro._model_weights (
    digest text NOT NULL,
    part integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (digest, part)
);
ALTER TABLE cerebro._model_weights ALTER COLUMN data SET STORAGE EXTERNAL;
COMMENT ON TABLE cerebro._model_weights IS 'Weights of registered versions, in parts, once for all versions that have the same.';

CREATE TABLE cerebro._model_version (
    name text NOT NULL,
    version integer NOT NULL,
    version_id bigint NOT NULL DEFAULT nextval('cerebro._version_id_seq'),
    digest text NOT NULL,
    weights_bytes bigint NOT NULL,
    model_arch text NOT NULL,
    compile_params text NOT NULL,
    fit_params text NOT NULL,
    backend text,
    about text NOT NULL,
    metrics jsonb NOT NULL,
    lineage jsonb NOT NULL,
    comment text,
    tags jsonb NOT NULL,
    registered_by text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, version)
);
COMMENT ON TABLE cerebro._model_version IS 'Versions of registered models, whole: with their weights, all that predicting takes. Rows never change.';
COMMENT ON COLUMN cerebro._model_version.version_id IS 'A number that no other version ever gets, by which sessions keep a model';
COMMENT ON COLUMN cerebro._model_version.about IS 'JSON: what the summary of its model table said of inputs, outputs and class values';

CREATE TABLE cerebro._model_alias (
    name text NOT NULL,
    alias text NOT NULL,
    version integer NOT NULL,
    PRIMARY KEY (name, alias)
);
COMMENT ON TABLE cerebro._model_alias IS 'Which version each alias of a registered model points at.';

CREATE TABLE cerebro._model_grant (
    name text NOT NULL,
    role regrole NOT NULL,
    privilege text NOT NULL CHECK (privilege IN ('predict', 'read', 'manage')),
    granted_by text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, role)
);
COMMENT ON TABLE cerebro._model_grant IS 'Which roles may use a registered model, and how far; role 0 is everybody.';

CREATE TABLE cerebro._model_event (
    name text NOT NULL,
    event_id bigint NOT NULL DEFAULT nextval('cerebro._model_event_id_seq'),
    event text NOT NULL CHECK (event IN ('registered', 'set', 'rolled back', 'alias dropped', 'version dropped')),
    alias text,
    version integer,
    role text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, event_id)
);
COMMENT ON TABLE cerebro._model_event IS 'What became of a registered model: versions that came and went, and where its aliases pointed.';

-- Nobody is granted these tables; with no policy, whoever should be reads nothing.
ALTER TABLE cerebro._model ENABLE ROW LEVEL SECURITY;
ALTER TABLE cerebro._model_weights ENABLE ROW LEVEL SECURITY;
ALTER TABLE cerebro._model_version ENABLE ROW LEVEL SECURITY;
ALTER TABLE cerebro._model_alias ENABLE ROW LEVEL SECURITY;
ALTER TABLE cerebro._model_grant ENABLE ROW LEVEL SECURITY;
ALTER TABLE cerebro._model_event ENABLE ROW LEVEL SECURITY;

DO $$
DECLARE
    part text;
BEGIN
    IF current_setting('gp_role', true) IS NOT NULL THEN
        FOREACH part IN ARRAY ARRAY['_model_version', '_model_alias', '_model_grant', '_model_event'] LOOP
            EXECUTE format('ALTER TABLE cerebro.%I SET DISTRIBUTED BY (name)', part);
        END LOOP;
    ELSE
        -- Greenplum does not enforce foreign keys, and warns of them.
        ALTER TABLE cerebro._model_alias
            ADD FOREIGN KEY (name, version) REFERENCES cerebro._model_version (name, version);
    END IF;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro._version_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._model_event_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._model', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._model_weights', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._model_version', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._model_alias', '');
-- A role that was dropped since has no name to be restored by.
SELECT pg_catalog.pg_extension_config_dump(
    'cerebro._model_grant', 'WHERE role::oid = 0 OR role::oid IN (SELECT oid FROM pg_catalog.pg_roles)'
);
SELECT pg_catalog.pg_extension_config_dump('cerebro._model_event', '');
