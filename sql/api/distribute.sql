CREATE OR REPLACE FUNCTION cerebro.distribute() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lacking text;
    policy record;
    told text := current_setting('client_min_messages');
BEGIN
    IF to_regclass('pg_catalog.pg_dist_node') IS NULL THEN
        RAISE EXCEPTION 'cerebro: this database has no Citus'
            USING ERRCODE = 'feature_not_supported',
            HINT = 'CREATE EXTENSION citus, and add the workers. Without Citus, cerebro needs no such call.';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_dist_local_group AS g WHERE g.groupid = 0) THEN
        RAISE EXCEPTION 'cerebro: this is a worker'
            USING ERRCODE = 'feature_not_supported', HINT = 'Call distribute() on the coordinator.';
    END IF;
    IF EXISTS (SELECT FROM pg_dist_partition AS p WHERE p.logicalrelid = 'cerebro._state'::regclass) THEN
        RAISE NOTICE 'cerebro: the tables of cerebro are distributed already';
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_dist_node AS n WHERE n.groupid = 0) THEN
        RAISE EXCEPTION 'cerebro: the workers do not know the coordinator'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'SELECT citus_set_coordinator_host(''its name'', its port);';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_dist_node AS n WHERE n.shouldhaveshards) THEN
        RAISE EXCEPTION 'cerebro: there are no workers'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'SELECT citus_add_node(''its name'', its port);';
    END IF;
    SELECT string_agg(format('%s: %s', s.host, s.missing), '; ') INTO lacking
    FROM cerebro.segments_ready() AS s WHERE NOT s.ok;
    IF lacking IS NOT NULL THEN
        RAISE EXCEPTION 'cerebro: not all nodes are ready'
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = lacking,
            HINT = 'Install the package of cerebro on every node.';
    END IF;
    -- Without a policy a table that has row-level security is closed to all but its owner. Citus takes no policy that has a query.
    FOR policy IN
        SELECT p.polname, p.polrelid::regclass AS object
        FROM cerebro._members('pg_class') AS member
        JOIN pg_policy AS p ON p.polrelid = member
        WHERE p.polrelid IN ('cerebro._state'::regclass, 'cerebro._visit'::regclass, 'cerebro._evaluation'::regclass)
    LOOP
        EXECUTE format('DROP POLICY %I ON %s', policy.polname, policy.object);
    END LOOP;
    -- Citus would say how to remove the rows on the coordinator, which are removed here.
    PERFORM set_config('client_min_messages', 'warning', TRUE);
    -- What sessions on workers leave lies beside the rows that it was made of, and is committed by one node.
    PERFORM create_distributed_table('cerebro._state', 'place', colocate_with => 'none');
    PERFORM create_distributed_table('cerebro._visit', 'place', colocate_with => 'cerebro._state');
    PERFORM create_distributed_table('cerebro._evaluation', 'place', colocate_with => 'cerebro._state');
    PERFORM truncate_local_data_after_distributing_table(t)
    FROM unnest(ARRAY['cerebro._state', 'cerebro._visit', 'cerebro._evaluation']::regclass[]) AS t;
    PERFORM set_config('client_min_messages', told, TRUE);
    PERFORM cerebro._read_from_workers();
END
$$;
COMMENT ON FUNCTION cerebro.distribute() IS
'Citus: distributes the tables of cerebro over the workers, once, before the first packed table is made. Call it as the owner of the extension on the coordinator, after cerebro is installed on every node.';
