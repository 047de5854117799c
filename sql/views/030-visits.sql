CREATE OR REPLACE VIEW cerebro.visits WITH (security_barrier) AS
SELECT
    v.run_id,
    v.mst_key,
    pg_catalog.abs(v.step) AS step,
    v.epoch,
    v.segment,
    v."rows",
    v.loss,
    v.state_bytes,
    v.read_seconds,
    v.train_seconds,
    v.write_seconds,
    v.pid,
    v.started_at,
    v.ended_at,
    v.cpu_seconds,
    v.memory_bytes
FROM cerebro._visible_visit AS v
-- What has averaged the states of all segments has made no visit.
WHERE v.segment >= 0;
COMMENT ON VIEW cerebro.visits IS 'The timeline of your runs: when each config trained on which segment.';
COMMENT ON COLUMN cerebro.visits.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.visits.mst_key IS 'Config';
COMMENT ON COLUMN cerebro.visits.step IS 'Number of the visit within its config, counted from 1';
COMMENT ON COLUMN cerebro.visits.epoch IS 'Epoch, counted from 1';
COMMENT ON COLUMN cerebro.visits.segment IS 'Segment, counted from 0';
COMMENT ON COLUMN cerebro.visits."rows" IS 'Rows of the segment''s partition';
COMMENT ON COLUMN cerebro.visits.loss IS 'Loss over the visit, as Keras reports it during training';
COMMENT ON COLUMN cerebro.visits.state_bytes IS 'Size of the state that the visit wrote';
COMMENT ON COLUMN cerebro.visits.read_seconds IS 'Time until rows and state were in memory and the model compiled';
COMMENT ON COLUMN cerebro.visits.train_seconds IS 'Time of the training itself';
COMMENT ON COLUMN cerebro.visits.write_seconds IS 'Time to write the new state';
COMMENT ON COLUMN cerebro.visits.pid IS 'Process of the segment session';
COMMENT ON COLUMN cerebro.visits.started_at IS 'When the visit began';
COMMENT ON COLUMN cerebro.visits.ended_at IS 'When it was about to commit';
COMMENT ON COLUMN cerebro.visits.cpu_seconds IS 'Processor time of the segment session during the visit, in all its threads; NULL in runs of older versions';
COMMENT ON COLUMN cerebro.visits.memory_bytes IS 'Memory of the segment session at the end of the visit, including shared memory; NULL in runs of older versions';
