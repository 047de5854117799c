-- A sequence, since it is read as it is at the moment and not as the reader's transaction sees the rest.
CREATE SEQUENCE cerebro._last_ending;
COMMENT ON SEQUENCE cerebro._last_ending IS 'The transaction in which the session behind a run last let go of one.';
