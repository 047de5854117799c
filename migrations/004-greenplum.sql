-- Greenplum: where the rows of each table lie. Elsewhere there is nothing to say.

DO $$
DECLARE
    name text;
BEGIN
    IF version() NOT LIKE '%Greenplum%' THEN
        RETURN;
    END IF;
    -- Few rows, read together with all others: whole on every segment.
    FOREACH name IN ARRAY ARRAY['settings', '_run', '_run_event', '_architecture', '_config', '_request', '_decision'] LOOP
        EXECUTE format('ALTER TABLE cerebro.%I SET DISTRIBUTED REPLICATED', name);
    END LOOP;
    -- What a visit leaves stands on one segment, so that it is committed there in one phase.
    FOREACH name IN ARRAY ARRAY['_state', '_visit', '_evaluation', '_metric', '_failure'] LOOP
        EXECUTE format('ALTER TABLE cerebro.%I SET DISTRIBUTED BY (run_id, mst_key)', name);
    END LOOP;
    EXECUTE 'ALTER TABLE cerebro._weights SET DISTRIBUTED BY (run_id, model_id)';

    -- Sessions take numbers in advance there; runs and what is asked of them count in the order of time.
    EXECUTE 'ALTER SEQUENCE cerebro._run_id_seq CACHE 1';
    EXECUTE 'ALTER SEQUENCE cerebro._request_id_seq CACHE 1';

    -- A statement about one key goes to one segment: the one that has the packed rows of that key, since both are
    -- distributed alike. Enough keys for a thousand segments to have some.
    EXECUTE 'CREATE TABLE cerebro._segment_key (dist_key integer PRIMARY KEY) DISTRIBUTED BY (dist_key)';
    EXECUTE 'INSERT INTO cerebro._segment_key SELECT generate_series(0, 16383)';
    EXECUTE 'COMMENT ON TABLE cerebro._segment_key IS ''Numbers, by which statements are sent to single segments.''';
END
$$;
