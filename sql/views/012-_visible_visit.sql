-- What is visible is decided in the scan that has the data: a leakproof condition of a user's may go below a join, and
-- EXPLAIN ANALYZE tells how many rows are found there.
CREATE OR REPLACE VIEW cerebro._visible_visit WITH (security_barrier) AS
SELECT v.*
FROM cerebro._visit AS v
WHERE v.run_id = ANY (ARRAY(SELECT r.run_id FROM cerebro._visible_run AS r));
COMMENT ON VIEW cerebro._visible_visit IS 'Internal: the visits of the runs that the current role may know of.';
