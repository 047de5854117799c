-- Functions end in search_path no more: they read the caller's themselves. What replaces them comes with the other functions.
DO $$
DECLARE
    old regprocedure;
BEGIN
    FOR old IN
        SELECT p.oid
        FROM pg_depend AS d
        JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
        JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
        WHERE e.extname = 'cerebro' AND d.deptype = 'e' AND 'search_path' = ANY (p.proargnames)
    LOOP
        EXECUTE format('DROP FUNCTION %s', old);
    END LOOP;
END
$$;
