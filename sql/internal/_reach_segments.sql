-- On Greenplum a session's processes on the segments start with the search_path of the moment. Where that is the one of a function, inside a
-- transaction block, they are never told the caller's: DDL with unqualified names does not find its tables there for as long as the session lives, and
-- DROP TABLE IF EXISTS leaves them. Functions in SQL and PL/pgSQL that reach the segments therefore start them first.
CREATE OR REPLACE FUNCTION cerebro._reach_segments() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own text;
BEGIN
    IF current_setting('gp_role', true) IS DISTINCT FROM 'dispatch' THEN
        RETURN;
    END IF;
    -- A session that has ever set its path has all its processes.
    IF (SELECT count(*) FROM gp_backend_info() AS b WHERE b.type = 'w')
        < (SELECT count(*) FROM gp_segment_configuration AS s WHERE s.content >= 0 AND s.role = 'p')
    THEN
        SELECT s.reset_val INTO own FROM pg_settings AS s WHERE s.name = 'search_path';
        PERFORM set_config('search_path', own, true);
    END IF;
END
$$;
COMMENT ON FUNCTION cerebro._reach_segments() IS
'Internal: on Greenplum, starts what is missing of the session''s processes on the segments, with the path that the session began with.';
