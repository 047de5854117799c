DO $$
BEGIN
    IF to_regnamespace('madlib') IS NOT NULL THEN
        RAISE EXCEPTION 'schema "madlib" exists already'
            USING ERRCODE = 'duplicate_schema',
            DETAIL = 'This extension gives the functions of cerebro that schema, and would stand in the way of MADlib''s own.',
            HINT = 'Call the functions in schema cerebro, or install the extension in a database that has no MADlib.';
    END IF;
END
$$;
CREATE SCHEMA madlib;
COMMENT ON SCHEMA madlib IS 'The functions of cerebro, for scripts that qualify them with MADlib''s schema.';
GRANT USAGE ON SCHEMA madlib TO PUBLIC;
