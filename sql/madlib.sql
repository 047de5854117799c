-- One function for each public one of cerebro, with the same parameters, defaults and result. They run with their
-- caller's rights and only call the other, which asks for its own privilege: PUBLIC may execute them. Nor have they a
-- search_path of their own, which would hide the caller's: what they say names everything in full. In version 0.1.0 they had.
-- Those whose namesake in cerebro has other parameters or another result by now, or is gone, go.
DO $$
DECLARE
    routine record;
BEGIN
    FOR routine IN
        SELECT p.oid::regprocedure AS old
        FROM pg_depend AS d
        JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
        JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
        WHERE
            e.extname = 'cerebro_madlib' AND d.deptype = 'e' AND ('search_path' = ANY (p.proargnames) OR NOT EXISTS (
                SELECT FROM pg_proc AS c
                WHERE
                    c.pronamespace = 'cerebro'::regnamespace AND c.proname = p.proname AND c.proargtypes = p.proargtypes
                    AND pg_get_function_result(c.oid) = pg_get_function_result(p.oid)))
    LOOP
        EXECUTE format('DROP FUNCTION %s', routine.old);
    END LOOP;
    FOR routine IN
        SELECT
            p.proname,
            pg_get_function_arguments(p.oid) AS arguments,
            pg_get_function_identity_arguments(p.oid) AS identity,
            pg_get_function_result(p.oid) AS result,
            obj_description(p.oid, 'pg_proc') AS comment,
            CASE WHEN p.proretset THEN '* FROM ' ELSE '' END AS columns,
            (SELECT string_agg('$' || n, ', ') FROM generate_series(1, p.pronargs) AS n) AS parameters
        FROM cerebro._usage_functions() AS f
        JOIN pg_proc AS p ON p.oid = f
        -- No function may call a procedure that commits.
        WHERE p.proname NOT LIKE '\_%' AND p.prokind = 'f'
    LOOP
        EXECUTE format(
            'CREATE OR REPLACE FUNCTION madlib.%I(%s) RETURNS %s LANGUAGE sql AS %L',
            routine.proname, routine.arguments, routine.result,
            format('SELECT %scerebro.%I(%s)', routine.columns, routine.proname, routine.parameters));
        EXECUTE format('COMMENT ON FUNCTION madlib.%I(%s) IS %L', routine.proname, routine.identity, routine.comment);
    END LOOP;
END
$$;
