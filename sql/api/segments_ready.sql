CREATE OR REPLACE FUNCTION cerebro.segments_ready()
RETURNS TABLE (
    segment integer, host text, cerebro text, python text, engines jsonb, gpus text[], ok boolean, missing text, cpu text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    query text := 'SELECT -1 AS content, cerebro._host_facts()::jsonb AS facts';
    processors text[] := '{}';
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
    IF to_regclass('pg_catalog.pg_dist_node') IS NOT NULL THEN
        query := query || ' UNION ALL SELECT (row_number() OVER (ORDER BY n.nodeid) - 1)::integer, CASE WHEN r.success'
            ' THEN r.result::jsonb ELSE jsonb_build_object(''host'', n.nodename || '':'' || n.nodeport, ''missing'', r.result) END'
            ' FROM run_command_on_workers(''SELECT cerebro._host_facts()'') AS r JOIN pg_dist_node AS n USING (nodename, nodeport)';
    END IF;
    FOR segment, host, cerebro, python, engines, gpus, ok, missing, cpu IN
        EXECUTE 'SELECT f.content, f.facts ->> ''host'', f.facts ->> ''cerebro'', f.facts ->> ''python'','
        ' f.facts -> ''engines'', ARRAY(SELECT jsonb_array_elements_text(f.facts -> ''gpus'')),'
        ' f.facts ->> ''missing'' IS NULL, f.facts ->> ''missing'', f.facts ->> ''cpu'''
        ' FROM (' || query || ') AS f ORDER BY 1'
    LOOP
        IF segment >= 0 AND cpu <> ALL (processors) THEN
            processors := processors || cpu;
        END IF;
        RETURN NEXT;
    END LOOP;
    IF cardinality(processors) > 1 THEN
        RAISE NOTICE 'cerebro: the segments have different processors: %', array_to_string(processors, '; ')
            USING HINT = 'The last bits of a model depend on the processors that train it. The same bits come again'
            ' only where the same segments have the same processors.';
    END IF;
END
$$;
COMMENT ON FUNCTION cerebro.segments_ready() IS
'Shows, for the server (-1), on Greenplum for each segment and on Citus for each worker, its host, the versions of the extension''s Python code, of Python and of the engines, its GPUs, whether it is ready or what is missing there, and its processors. A NOTICE says if the segments have different ones, since the bits of a model depend on them.';
