CREATE OR REPLACE FUNCTION cerebro.segments_ready()
RETURNS TABLE (
    segment integer, host text, cerebro text, python text, engines jsonb, gpus text[], ok boolean, missing text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    query text := 'SELECT -1 AS content, cerebro._host_facts()::jsonb AS facts';
BEGIN
    IF current_setting('gp_role', TRUE) = 'execute' THEN
        RAISE EXCEPTION 'cerebro: a query that reads or fills tables cannot call this function'
            USING ERRCODE = 'feature_not_supported',
            DETAIL = 'It would look from a segment, and see none of the others.',
            HINT = 'Call it in a statement of its own. To keep what it gives, see docs/greenplum.md.';
    END IF;
    PERFORM cerebro._reach_segments();
    IF current_setting('gp_role', true) IS NOT NULL THEN
        query := query || ' UNION ALL SELECT s.content, s.facts FROM (SELECT gp_segment_id AS content,'
            ' cerebro._host_facts()::jsonb AS facts FROM gp_dist_random(''pg_catalog.gp_id'')) AS s';
    END IF;
    RETURN QUERY EXECUTE 'SELECT f.content, f.facts ->> ''host'', f.facts ->> ''cerebro'', f.facts ->> ''python'','
        ' f.facts -> ''engines'', ARRAY(SELECT jsonb_array_elements_text(f.facts -> ''gpus'')),'
        ' f.facts ->> ''missing'' IS NULL, f.facts ->> ''missing'' FROM (' || query || ') AS f ORDER BY 1';
END
$$;
COMMENT ON FUNCTION cerebro.segments_ready() IS
'Shows, for the server (-1) and on Greenplum for each segment, its host, the versions of the extension''s Python code, of Python and of the engines, its GPUs, and whether it is ready or what is missing there.';
