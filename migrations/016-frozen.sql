-- What no training of a config changes stands once for a run, and its states name it by a digest.
CREATE TABLE cerebro._frozen (
    run_id bigint NOT NULL,
    digest text NOT NULL,
    part integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run_id, digest, part)
);
ALTER TABLE cerebro._frozen ALTER COLUMN data SET STORAGE EXTERNAL;
COMMENT ON TABLE cerebro._frozen IS 'Weights that no training changes, in parts: those of frozen layers, which states name by their digest.';

ALTER TABLE cerebro._frozen ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._frozen USING (
    EXISTS (SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) _frozen.run_id));

DO $$
BEGIN
    IF version() LIKE '%Greenplum%' THEN
        EXECUTE 'ALTER TABLE cerebro._frozen SET DISTRIBUTED BY (run_id)';
    END IF;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro._frozen', '');
