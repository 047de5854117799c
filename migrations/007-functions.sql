-- Losses, metrics and layers that a superuser has registered: their source, who may use them, which runs use them.

CREATE TABLE cerebro._function (
    name text NOT NULL,
    version integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('loss', 'metric', 'layer')),
    digest text,
    source text,
    higher_is_better boolean,
    description text,
    registered_by text NOT NULL DEFAULT current_user,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, version),
    CHECK ((digest IS NULL) = (source IS NULL))
);
COMMENT ON TABLE cerebro._function IS 'Python source that a superuser has registered, one row for each version and never changed; a row without source ends all versions before it.';

CREATE TABLE cerebro._function_grant (
    name text NOT NULL,
    role regrole NOT NULL,
    granted_by text NOT NULL DEFAULT current_user,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, role)
);
COMMENT ON TABLE cerebro._function_grant IS 'Which roles may name a registered function; role 0 is everybody.';

CREATE TABLE cerebro._run_function (
    run_id bigint NOT NULL,
    digest text NOT NULL,
    PRIMARY KEY (run_id, digest)
);
COMMENT ON TABLE cerebro._run_function IS 'The registered functions of a run, in the version that it uses from its first visit to its last.';

-- Nobody is granted these tables; the policies stand in case somebody is.
ALTER TABLE cerebro._function ENABLE ROW LEVEL SECURITY;
ALTER TABLE cerebro._function_grant ENABLE ROW LEVEL SECURITY;
ALTER TABLE cerebro._run_function ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON cerebro._run_function USING (EXISTS (
    SELECT FROM cerebro._run AS r WHERE r.run_id OPERATOR(pg_catalog.=) _run_function.run_id));

DO $$
BEGIN
    IF version() LIKE '%Greenplum%' THEN
        -- No replicated tables: code of a user's that a segment runs could read those.
        EXECUTE 'ALTER TABLE cerebro._function SET DISTRIBUTED BY (name)';
        EXECUTE 'ALTER TABLE cerebro._function_grant SET DISTRIBUTED BY (name)';
        EXECUTE 'ALTER TABLE cerebro._run_function SET DISTRIBUTED BY (run_id)';
    END IF;
END
$$;

SELECT pg_catalog.pg_extension_config_dump('cerebro._function', '');
-- A role that was dropped since has no name to be restored by.
SELECT pg_catalog.pg_extension_config_dump(
    'cerebro._function_grant', 'WHERE role::oid = 0 OR role::oid IN (SELECT oid FROM pg_catalog.pg_roles)'
);
SELECT pg_catalog.pg_extension_config_dump('cerebro._run_function', '');

-- MADlib's list of functions, of which a run keeps the name.
ALTER TABLE cerebro._run ADD COLUMN object_table text;
