-- The last part of every install and update. Nothing of the extension is open to PUBLIC; grant_usage is the one door.

CREATE OR REPLACE FUNCTION cerebro._members(catalog regclass) RETURNS SETOF oid
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
SELECT d.objid
FROM pg_depend AS d
JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'cerebro' AND d.deptype = 'e' AND d.classid = catalog
$$;
COMMENT ON FUNCTION cerebro._members(regclass) IS
'Internal: the objects of the extension that one system catalog holds.';

CREATE OR REPLACE FUNCTION cerebro._usage_functions() RETURNS SETOF regprocedure
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
SELECT p.oid::regprocedure
FROM cerebro._members('pg_proc') AS member
JOIN pg_proc AS p ON p.oid = member
-- Public functions run with their caller's rights, and so the caller must be able to execute what they go through.
WHERE p.proname IN ('_boot', '_as_owner', '_array_bytes')
    OR (p.proname NOT LIKE '\_%' AND p.proname NOT IN ('grant_usage', 'revoke_usage'))
$$;
COMMENT ON FUNCTION cerebro._usage_functions() IS
'Internal: the functions that grant_usage opens to a role.';

CREATE OR REPLACE FUNCTION cerebro._usage_views() RETURNS SETOF regclass
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
SELECT c.oid::regclass
FROM cerebro._members('pg_class') AS member
JOIN pg_class AS c ON c.oid = member
WHERE c.relkind = 'v' AND c.relname NOT LIKE '\_%'
$$;
COMMENT ON FUNCTION cerebro._usage_views() IS
'Internal: the views that grant_usage opens to a role.';

CREATE OR REPLACE FUNCTION cerebro.grant_usage(role name) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    routine regprocedure;
    view regclass;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA cerebro TO %I', role);
    FOR routine IN SELECT f FROM cerebro._usage_functions() AS f LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %I', routine, role);
    END LOOP;
    FOR view IN SELECT v FROM cerebro._usage_views() AS v LOOP
        EXECUTE format('GRANT SELECT ON %s TO %I', view, role);
    END LOOP;
END
$$;
COMMENT ON FUNCTION cerebro.grant_usage(name) IS
'Lets a role use cerebro: its functions and views, and nothing else of it. May be repeated; only the owner of the extension or a superuser may call it.';

CREATE OR REPLACE FUNCTION cerebro.revoke_usage(role name) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA cerebro FROM %I', role);
    EXECUTE format('REVOKE ALL ON ALL ROUTINES IN SCHEMA cerebro FROM %I', role);
    EXECUTE format('REVOKE ALL ON SCHEMA cerebro FROM %I', role);
END
$$;
COMMENT ON FUNCTION cerebro.revoke_usage(name) IS
'Takes back what grant_usage gave to a role.';

DO $$
DECLARE
    routine regprocedure;
    view regclass;
    role name;
BEGIN
    -- Only where there is something to revoke: PostgreSQL takes the privileges of an object that a script touches for
    -- the extension's own, those that administrators have granted on it included, and pg_dump would leave them out.
    FOR routine IN
        SELECT member FROM cerebro._members('pg_proc') AS member WHERE has_function_privilege('public', member, 'EXECUTE')
    LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', routine);
    END LOOP;

    IF NOT has_schema_privilege('pg_monitor', 'cerebro', 'USAGE') THEN
        GRANT USAGE ON SCHEMA cerebro TO pg_monitor;
    END IF;
    FOR view IN
        SELECT v FROM cerebro._usage_views() AS v WHERE NOT has_table_privilege('pg_monitor', v, 'SELECT')
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO pg_monitor', view);
    END LOOP;

    -- An update may have brought functions that the roles of grant_usage do not hold yet.
    FOR role IN
        SELECT r.rolname
        FROM pg_proc AS p, aclexplode(p.proacl) AS a, pg_roles AS r
        WHERE p.oid = 'cerebro._boot()'::regprocedure AND r.oid = a.grantee AND a.grantee <> p.proowner
    LOOP
        PERFORM cerebro.grant_usage(role);
    END LOOP;
END
$$;
