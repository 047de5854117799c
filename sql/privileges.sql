-- The last part of every install and update. Nothing of the extension is open to PUBLIC: grant_usage is the one door.

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
WHERE p.proname IN (
        '_boot', '_as_owner', '_array_bytes', '_json', '_text', '_predict_row', '_explain_row', '_predict_statement', '_predict_batch', '_related_statement', '_host_facts', '_reach_segments',
        '_begin_scheduled', '_end_scheduled', '_take_buffer', '_take_row', '_give_pieces', '_join_pieces', '_give_predictions', '_visible_rows', '_fetch_rows')
    OR (p.proname NOT LIKE '\_%' AND p.proname NOT IN (
        'grant_usage', 'revoke_usage', 'distribute',
        -- What a superuser alone may do.
        'register_function', 'unregister_function', 'grant_function', 'revoke_function'))
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
    PERFORM cerebro._reach_segments();
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
    PERFORM cerebro._reach_segments();
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA cerebro FROM %I', role);
    EXECUTE format('REVOKE ALL ON ALL ROUTINES IN SCHEMA cerebro FROM %I', role);
    EXECUTE format('REVOKE ALL ON SCHEMA cerebro FROM %I', role);
END
$$;
COMMENT ON FUNCTION cerebro.revoke_usage(name) IS
'Takes back what grant_usage gave to a role.';

CREATE OR REPLACE FUNCTION cerebro._unwanted_privileges(installing boolean) RETURNS TABLE (object text, grantee oid)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
SELECT format('ROUTINE %s', p.oid::regprocedure), a.grantee
FROM cerebro._members('pg_proc') AS member
JOIN pg_proc AS p ON p.oid = member
CROSS JOIN aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
WHERE a.grantee <> p.proowner
    AND (installing OR a.grantee = 0 OR NOT EXISTS (SELECT FROM cerebro._usage_functions() AS f WHERE f::oid = p.oid))
UNION
SELECT format('%s %s', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass), a.grantee
FROM cerebro._members('pg_class') AS member
JOIN pg_class AS c ON c.oid = member
CROSS JOIN aclexplode(c.relacl) AS a
WHERE a.grantee <> c.relowner
    AND (installing OR (c.relkind <> 'v' AND EXISTS (
        SELECT FROM pg_default_acl AS d CROSS JOIN aclexplode(d.defaclacl) AS b
        WHERE d.defaclrole = c.relowner AND d.defaclobjtype IN ('r', 'S') AND b.grantee = a.grantee)))
UNION
SELECT 'SCHEMA cerebro', a.grantee
FROM pg_namespace AS n CROSS JOIN aclexplode(n.nspacl) AS a
WHERE n.nspname = 'cerebro' AND installing AND a.grantee <> n.nspowner
$$;
COMMENT ON FUNCTION cerebro._unwanted_privileges(boolean) IS
'Internal: what others have been given by the server''s defaults or by ALTER DEFAULT PRIVILEGES, which reach into extensions.';

DO $$
DECLARE
    unwanted record;
    view regclass;
    role name;
BEGIN
    -- Only where there is something to revoke: PostgreSQL takes the privileges of an object that a script touches for
    -- the extension's own, those that administrators have granted on it included, and pg_dump would leave them out.
    FOR unwanted IN
        SELECT * FROM cerebro._unwanted_privileges(current_setting('cerebro.installing', TRUE) IS NOT DISTINCT FROM 'on')
    LOOP
        EXECUTE format(
            'REVOKE ALL ON %s FROM %s',
            unwanted.object, CASE unwanted.grantee WHEN 0 THEN 'PUBLIC' ELSE unwanted.grantee::regrole::text END);
    END LOOP;

    IF NOT has_schema_privilege('pg_monitor', 'cerebro', 'USAGE') THEN
        GRANT USAGE ON SCHEMA cerebro TO pg_monitor;
    END IF;
    FOR view IN
        SELECT v FROM cerebro._usage_views() AS v WHERE NOT has_table_privilege('pg_monitor', v, 'SELECT')
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO pg_monitor', view);
    END LOOP;

    -- Greenplum's pg_dump writes the policies of an extension's tables down, and what it restores has them already. Without one
    -- a table that has row-level security is closed to all but its owner: nobody is granted these.
    IF current_setting('gp_role', true) IS NOT NULL THEN
        FOR unwanted IN
            SELECT p.polname, p.polrelid::regclass AS object
            FROM cerebro._members('pg_class') AS member
            JOIN pg_policy AS p ON p.polrelid = member
        LOOP
            EXECUTE format('DROP POLICY %I ON %s', unwanted.polname, unwanted.object);
        END LOOP;
    END IF;

    -- An update has written the views of runs anew.
    PERFORM cerebro._read_from_workers();

    -- An update may have brought functions that the roles of grant_usage do not hold yet.
    FOR role IN
        SELECT r.rolname
        FROM pg_proc AS p, aclexplode(p.proacl) AS a, pg_roles AS r
        WHERE p.oid = 'cerebro._boot()'::regprocedure AND r.oid = a.grantee AND a.grantee <> p.proowner
    LOOP
        PERFORM cerebro.grant_usage(role);
    END LOOP;

    -- PostgreSQL has taken those grants for the extension's own, and pg_dump would leave them out: its own are the
    -- owner's and the monitors'. From PostgreSQL 17 on, pg_shdepend names the roles of initial privileges as well.
    IF current_setting('gp_role', true) IS NOT NULL THEN
        PERFORM set_config('allow_system_table_mods', 'on', TRUE);
    END IF;
    UPDATE pg_init_privs AS i
    SET initprivs = ARRAY(
        SELECT item FROM unnest(i.initprivs) AS item
        WHERE NOT EXISTS (
            SELECT FROM aclexplode(ARRAY[item]) AS a WHERE a.grantee NOT IN (a.grantor, 'pg_monitor'::regrole)))
    FROM pg_depend AS d
    JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
    WHERE e.extname = 'cerebro' AND d.deptype = 'e' AND d.classid = i.classoid AND d.objid = i.objoid;
    DELETE FROM pg_shdepend AS s USING pg_depend AS d, pg_extension AS e
    WHERE e.extname = 'cerebro' AND d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
        AND s.deptype = 'i' AND s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND s.classid = d.classid AND s.objid = d.objid AND s.refobjid <> 'pg_monitor'::regrole;
END
$$;
