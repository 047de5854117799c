-- The last part of every install and update. Nothing of the extension is open to PUBLIC; grant_usage is the one door.

CREATE OR REPLACE FUNCTION cerebro._usage_functions() RETURNS SETOF regprocedure
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
SELECT p.oid::regprocedure
FROM pg_proc AS p
JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'cerebro'
-- Public functions run with their caller's rights, and so the caller must be able to execute what they go through.
AND (p.proname IN ('_boot', '_as_owner')
    OR (p.proname NOT LIKE '\_%' AND p.proname NOT IN ('grant_usage', 'revoke_usage')))
$$;
COMMENT ON FUNCTION cerebro._usage_functions() IS
'Internal: the functions that grant_usage opens to a role.';

CREATE OR REPLACE FUNCTION cerebro._usage_views() RETURNS SETOF regclass
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
SELECT c.oid::regclass
FROM pg_class AS c
JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'cerebro' AND c.relkind = 'v' AND c.relname NOT LIKE '\_%'
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
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', routine, role);
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
    -- Only where there is something to revoke: whatever a script grants or revokes counts as the extension's own
    -- setting from then on, together with what administrators have granted on the same function, and pg_dump would
    -- leave their grants out.
    FOR routine IN
        SELECT p.oid FROM pg_catalog.pg_proc AS p
        JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
        JOIN pg_catalog.pg_extension AS e ON d.refobjid = e.oid AND e.extname = 'cerebro'
        WHERE pg_catalog.has_function_privilege('public', p.oid, 'EXECUTE')
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', routine);
    END LOOP;

    GRANT USAGE ON SCHEMA cerebro TO pg_monitor;
    FOR view IN
        SELECT v FROM cerebro._usage_views() AS v
        WHERE NOT pg_catalog.has_table_privilege('pg_monitor', v, 'SELECT')
    LOOP
        EXECUTE pg_catalog.format('GRANT SELECT ON %s TO pg_monitor', view);
    END LOOP;

    -- An update may have brought functions that the roles of grant_usage do not hold yet.
    FOR role IN
        SELECT DISTINCT r.rolname
        FROM pg_catalog.pg_proc AS p
        CROSS JOIN LATERAL pg_catalog.aclexplode(p.proacl) AS a
        JOIN pg_catalog.pg_roles AS r ON r.oid = a.grantee
        WHERE p.oid = 'cerebro._boot()'::regprocedure AND a.grantee <> p.proowner
    LOOP
        PERFORM cerebro.grant_usage(role);
    END LOOP;
END
$$;
