CREATE OR REPLACE FUNCTION cerebro.grant_model_access(model regclass, role name) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place oid;
    own_schema name;
    own_name name;
    part regclass;
BEGIN
    PERFORM cerebro._reach_segments();
    IF NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = role) THEN
        RAISE EXCEPTION 'cerebro: role % does not exist', coalesce(quote_ident(role), 'NULL')
            USING ERRCODE = 'undefined_object', HINT = 'Name one role.';
    END IF;
    SELECT c.relnamespace, n.nspname, c.relname INTO place, own_schema, own_name
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = model;
    -- A longer name would be cut to that of the table itself.
    IF own_name IS NULL OR octet_length(own_name || '_summary') > 63
        OR to_regclass(format('%I.%I', own_schema, own_name || '_summary')) IS NULL
    THEN
        RAISE EXCEPTION 'cerebro: % is not a model table: %_summary does not exist', coalesce(model::text, 'NULL'), coalesce(own_name, '')
            USING ERRCODE = 'wrong_object_type', HINT = 'Name the table that holds the models.';
    END IF;
    IF NOT has_schema_privilege(role, 'cerebro', 'USAGE') THEN
        IF NOT pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'cerebro'), 'USAGE') THEN
            RAISE EXCEPTION 'cerebro: role % may not use cerebro yet', quote_ident(role)
                USING ERRCODE = 'insufficient_privilege',
                HINT = format('A superuser opens it: SELECT cerebro.grant_usage(%L).', role);
        END IF;
        PERFORM cerebro.grant_usage(role);
    END IF;
    FOREACH part IN ARRAY ARRAY[
        model, to_regclass(format('%I.%I', own_schema, own_name || '_info')),
        to_regclass(format('%I.%I', own_schema, own_name || '_summary'))]
    LOOP
        IF part IS NOT NULL THEN
            IF NOT has_table_privilege(part, 'SELECT WITH GRANT OPTION') THEN
                RAISE EXCEPTION 'cerebro: permission denied for table %', part
                    USING ERRCODE = 'insufficient_privilege', HINT = 'The owner of the tables calls this.';
            END IF;
            EXECUTE format('GRANT SELECT ON TABLE %s TO %I', part, role);
        END IF;
    END LOOP;
    IF NOT has_schema_privilege(role, place, 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', own_schema, role);
        IF NOT has_schema_privilege(role, place, 'USAGE') THEN
            RAISE EXCEPTION 'cerebro: permission denied for schema %', quote_ident(own_schema)
                USING ERRCODE = 'insufficient_privilege',
                HINT = format('Its owner opens it: GRANT USAGE ON SCHEMA %I TO %I.', own_schema, role);
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION cerebro.grant_model_access(regclass, name) IS
'Lets a role predict with a model table, evaluate it and read its models. It grants SELECT on the table, its _info and its _summary, and USAGE on their schema. The owner of the tables calls it. When a superuser calls it, it also calls grant_usage for the role.';
