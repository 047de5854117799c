-- Heirs of Greenplum whose version() does not name it: migrations up to 017 took them for PostgreSQL. What those did on Greenplum
-- is done here.
DO $$
DECLARE
    name text;
BEGIN
    IF current_setting('gp_role', true) IS NULL OR to_regclass('cerebro._segment_key') IS NOT NULL THEN
        RETURN;
    END IF;
    FOREACH name IN ARRAY ARRAY['_run', '_run_event', '_config', '_request', '_decision'] LOOP
        EXECUTE format('ALTER TABLE cerebro.%I SET DISTRIBUTED REPLICATED', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['_architecture', '_run_function', '_rate', '_group', '_frozen'] LOOP
        EXECUTE format('ALTER TABLE cerebro.%I SET DISTRIBUTED BY (run_id)', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['_function', '_function_grant'] LOOP
        EXECUTE format('ALTER TABLE cerebro.%I SET DISTRIBUTED BY (name)', name);
    END LOOP;
    EXECUTE 'ALTER TABLE cerebro._metric SET DISTRIBUTED BY (run_id, mst_key)';
    EXECUTE 'ALTER TABLE cerebro._weights SET DISTRIBUTED BY (run_id, model_id)';
    EXECUTE 'ALTER TABLE cerebro._drift SET DISTRIBUTED BY (version)';
    FOREACH name IN ARRAY ARRAY['_state', '_visit', '_evaluation'] LOOP
        EXECUTE format('ALTER TABLE cerebro.%I DROP CONSTRAINT %I', name, name || '_pkey');
        EXECUTE format('ALTER TABLE cerebro.%I SET DISTRIBUTED BY (place)', name);
    END LOOP;
    EXECUTE 'ALTER TABLE cerebro._state ADD PRIMARY KEY (run_id, mst_key, step, part, place)';
    EXECUTE 'ALTER TABLE cerebro._visit ADD PRIMARY KEY (run_id, mst_key, step, place)';
    EXECUTE 'ALTER TABLE cerebro._evaluation ADD PRIMARY KEY (run_id, mst_key, epoch, dataset, segment, place)';
    EXECUTE 'ALTER TABLE cerebro._run_event REPLICA IDENTITY DEFAULT';

    EXECUTE 'ALTER SEQUENCE cerebro._run_id_seq CACHE 1';
    EXECUTE 'ALTER SEQUENCE cerebro._request_id_seq CACHE 1';

    EXECUTE 'CREATE TABLE cerebro._segment_key (dist_key integer PRIMARY KEY) DISTRIBUTED BY (dist_key)';
    EXECUTE 'INSERT INTO cerebro._segment_key SELECT generate_series(0, 16383)';
    EXECUTE 'COMMENT ON TABLE cerebro._segment_key IS ''Numbers, by which statements are sent to single segments.''';
END
$$;
