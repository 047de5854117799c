-- Checks of registered models, which say whether rows still look like those that a version was trained on.
CREATE SEQUENCE cerebro._check_id_seq CACHE 1;

CREATE TABLE cerebro._model_check (
    name text NOT NULL,
    check_id bigint NOT NULL DEFAULT nextval('cerebro._check_id_seq'),
    version integer NOT NULL,
    source_table text NOT NULL,
    rows bigint NOT NULL,
    verdict text NOT NULL CHECK (verdict IN ('ok', 'warn', 'alarm')),
    findings jsonb NOT NULL,
    role text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, check_id)
);
COMMENT ON TABLE cerebro._model_check IS 'Checks of versions of registered models, with all their findings.';

-- Nobody is granted this table; with no policy, whoever should be reads nothing.
ALTER TABLE cerebro._model_check ENABLE ROW LEVEL SECURITY;

DO $$
BEGIN
    IF current_setting('gp_role', true) IS NOT NULL THEN
        EXECUTE 'ALTER TABLE cerebro._model_check SET DISTRIBUTED BY (name)';
    END IF;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro._check_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('cerebro._model_check', '');
