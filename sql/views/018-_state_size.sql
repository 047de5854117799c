CREATE OR REPLACE VIEW cerebro._state_size WITH (security_barrier) AS
SELECT s.run_id, s.mst_key, s.step, pg_catalog.sum(pg_catalog.octet_length(s.data))::bigint AS bytes
FROM cerebro._state AS s
GROUP BY s.run_id, s.mst_key, s.step;
COMMENT ON VIEW cerebro._state_size IS 'Internal: the size of each stored state.';
