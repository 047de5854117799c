ALTER TABLE cerebro._run ADD COLUMN spelled text NOT NULL DEFAULT '{}';
COMMENT ON COLUMN cerebro._run.spelled IS 'How the names of its tables were written in the call, for the summaries';
