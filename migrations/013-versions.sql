-- Packed tables to which rows are added have versions, and runs know theirs.
ALTER TABLE cerebro._run ADD COLUMN packed_versions text NOT NULL DEFAULT '{}';
COMMENT ON COLUMN cerebro._run.packed_versions IS 'JSON: for each packed table its version when the run began, and below which number its buffers are; nothing in runs of older versions';

CREATE TABLE cerebro._drift (
    packed regclass NOT NULL,
    owner regrole NOT NULL,
    version integer NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    rows bigint NOT NULL,
    column_name text NOT NULL,
    nulls_before double precision,
    nulls double precision,
    unseen_before double precision,
    unseen double precision,
    mean_before double precision,
    mean double precision,
    stability double precision,
    PRIMARY KEY (packed, version, column_name)
);
COMMENT ON TABLE cerebro._drift IS 'How rows that were added to packed tables differ from those before them, a row for each column of each call.';

-- Nobody is granted this table; with no policy, whoever should be reads nothing.
ALTER TABLE cerebro._drift ENABLE ROW LEVEL SECURITY;

DO $$
BEGIN
    IF version() LIKE '%Greenplum%' THEN
        EXECUTE 'ALTER TABLE cerebro._drift SET DISTRIBUTED BY (version)';
    END IF;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro._drift', '');
