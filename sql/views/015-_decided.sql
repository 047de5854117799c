CREATE OR REPLACE VIEW cerebro._decided WITH (security_barrier) AS
SELECT d.run_id, d.number::bigint AS number, d.decision, d.mst_key, d.epochs, FALSE AS pending
FROM cerebro._decision AS d
WHERE d.decision NOT IN ('measured', 'refused')
UNION ALL
SELECT q.run_id, 2147483647 + q.request_id AS number, q.decision, q.mst_key, q.epochs, TRUE AS pending
FROM cerebro._request AS q
WHERE NOT EXISTS (SELECT FROM cerebro._decision AS d WHERE d.request_id = q.request_id);
COMMENT ON VIEW cerebro._decided IS 'Internal: what was decided in each run and, after it, what is asked for.';
