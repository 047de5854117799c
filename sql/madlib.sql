-- One function for each public one of cerebro, with the same parameters, defaults and result. They run with their
-- caller's rights and only call the other, which asks for its own privilege: PUBLIC may execute them.
DO $$
DECLARE
    routine record;
BEGIN
    FOR routine IN
        SELECT
            p.oid, p.proname, p.proretset,
            pg_catalog.pg_get_function_arguments(p.oid) AS arguments,
            pg_catalog.pg_get_function_identity_arguments(p.oid) AS identity,
            pg_catalog.pg_get_function_result(p.oid) AS result,
            pg_catalog.obj_description(p.oid, 'pg_proc') AS comment,
            (SELECT pg_catalog.string_agg('$' OPERATOR(pg_catalog.||) n, ', ') FROM pg_catalog.generate_series(1, p.pronargs) AS n) AS parameters
        FROM cerebro._usage_functions() AS f
        JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) f
        WHERE p.proname NOT LIKE '\_%'
    LOOP
        EXECUTE pg_catalog.format(
            'CREATE OR REPLACE FUNCTION madlib.%I(%s) RETURNS %s LANGUAGE sql SET search_path = pg_catalog, pg_temp AS %L',
            routine.proname, routine.arguments, routine.result,
            pg_catalog.format(
                CASE WHEN routine.proretset THEN 'SELECT * FROM cerebro.%I(%s)' ELSE 'SELECT cerebro.%I(%s)' END,
                routine.proname, routine.parameters));
        EXECUTE pg_catalog.format(
            'COMMENT ON FUNCTION madlib.%I(%s) IS %L', routine.proname, routine.identity, routine.comment);
    END LOOP;
END
$$;
