-- What a visit leaves lies where it was made: on Citus, as on Greenplum, a key must name the place.
DO $$
BEGIN
    IF current_setting('gp_role', true) IS NOT NULL THEN
        RETURN;
    END IF;
    ALTER TABLE cerebro._state DROP CONSTRAINT _state_pkey, ADD PRIMARY KEY (run_id, mst_key, step, part, place);
    ALTER TABLE cerebro._visit DROP CONSTRAINT _visit_pkey, ADD PRIMARY KEY (run_id, mst_key, step, place);
    ALTER TABLE cerebro._evaluation
        DROP CONSTRAINT _evaluation_pkey, ADD PRIMARY KEY (run_id, mst_key, epoch, dataset, segment, place);
END
$$;
COMMENT ON COLUMN cerebro._state.place IS 'Greenplum and Citus: the distribution key of the rows beside which it was made';
COMMENT ON COLUMN cerebro._visit.place IS 'Greenplum and Citus: the distribution key of the rows beside which it was made';
COMMENT ON COLUMN cerebro._evaluation.place IS 'Greenplum and Citus: the distribution key of the rows beside which it was made';
