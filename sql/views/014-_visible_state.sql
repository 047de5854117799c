CREATE OR REPLACE VIEW cerebro._visible_state WITH (security_barrier) AS
SELECT s.run_id, s.mst_key, s.step, pg_catalog.sum(pg_catalog.octet_length(s.data))::bigint AS bytes
FROM cerebro._state AS s
WHERE s.run_id = ANY (ARRAY(SELECT r.run_id FROM cerebro._visible_run AS r))
GROUP BY s.run_id, s.mst_key, s.step;
COMMENT ON VIEW cerebro._visible_state IS 'Internal: the sizes of the states of the runs that the current role may know of.';
