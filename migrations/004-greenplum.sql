-- Greenplum: where the rows of each table lie. Elsewhere `place` is all that there is to say, and always 0.

ALTER TABLE cerebro._state ADD COLUMN place integer NOT NULL DEFAULT 0;
ALTER TABLE cerebro._visit ADD COLUMN place integer NOT NULL DEFAULT 0;
ALTER TABLE cerebro._evaluation ADD COLUMN place integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN cerebro._state.place IS 'Greenplum: the distribution key of the rows beside which it was made';
COMMENT ON COLUMN cerebro._visit.place IS 'Greenplum: the distribution key of the rows beside which it was made';
COMMENT ON COLUMN cerebro._evaluation.place IS 'Greenplum: the distribution key of the rows beside which it was made';

DO $$
DECLARE
    name text;
BEGIN
    IF version() NOT LIKE '%Greenplum%' THEN
        RETURN;
    END IF;
    -- Few rows, read together with all others: whole on every segment. Code of a user's that a segment runs may read
    -- them, since Greenplum asks for the rights to a table on the coordinator alone; it may read no distributed one, as
    -- `settings` is already by its key.
    FOREACH name IN ARRAY ARRAY['_run', '_run_event', '_config', '_request', '_decision'] LOOP
        EXECUTE format('ALTER TABLE cerebro.%I SET DISTRIBUTED REPLICATED', name);
    END LOOP;
    EXECUTE 'ALTER TABLE cerebro._architecture SET DISTRIBUTED BY (run_id)';
    -- What a visit leaves stands where it was made: it need not move, and is committed in one phase.
    FOREACH name IN ARRAY ARRAY['_state', '_visit', '_evaluation'] LOOP
        EXECUTE format('ALTER TABLE cerebro.%I DROP CONSTRAINT %I', name, name || '_pkey');
        EXECUTE format('ALTER TABLE cerebro.%I SET DISTRIBUTED BY (place)', name);
    END LOOP;
    EXECUTE 'ALTER TABLE cerebro._state ADD PRIMARY KEY (run_id, mst_key, step, part, place)';
    EXECUTE 'ALTER TABLE cerebro._visit ADD PRIMARY KEY (run_id, mst_key, step, place)';
    EXECUTE 'ALTER TABLE cerebro._evaluation ADD PRIMARY KEY (run_id, mst_key, epoch, dataset, segment, place)';
    -- Their first columns are what _failure is distributed by already.
    EXECUTE 'ALTER TABLE cerebro._metric SET DISTRIBUTED BY (run_id, mst_key)';
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
