-- Citus reads distributed tables with the rights of the role that reads a view, which has none on ours.
CREATE OR REPLACE FUNCTION cerebro._read_from_workers() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted record;
BEGIN
    IF to_regclass('pg_catalog.pg_dist_partition') IS NULL THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_dist_partition AS p WHERE p.logicalrelid = 'cerebro._state'::regclass) THEN
        RETURN;
    END IF;
    FOR wanted IN
        SELECT v.name, v.rows, v.fields FROM (VALUES
            ('_visible_visit', 'visits', 'json_populate_record(NULL::cerebro._visit, r) AS v'),
            ('_visible_evaluation', 'evaluations',
                'json_to_record(r) AS v (run_id bigint, mst_key integer, epoch integer, segment integer, seconds double precision)'),
            ('_visible_state', 'states', 'json_to_record(r) AS v (run_id bigint, mst_key integer, step integer, bytes bigint)')
        ) AS v (name, rows, fields)
    LOOP
        EXECUTE format(
            'CREATE OR REPLACE VIEW cerebro.%I WITH (security_barrier) AS SELECT v.* FROM cerebro._visible_rows(%L) AS r, %s',
            wanted.name, wanted.rows, wanted.fields);
    END LOOP;
END
$$;
COMMENT ON FUNCTION cerebro._read_from_workers() IS
'Internal: lets the views of runs read what lies on the workers of a Citus cluster, if the extension is distributed over one.';
