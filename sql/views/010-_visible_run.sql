CREATE OR REPLACE VIEW cerebro._visible_run WITH (security_barrier) AS
SELECT r.*
FROM cerebro._run AS r
WHERE r.kind <> 'evaluation'
    AND (pg_catalog.pg_has_role(r.owner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE'));
COMMENT ON VIEW cerebro._visible_run IS 'Internal: the runs that the current role may know of, its own and for monitors all.';
