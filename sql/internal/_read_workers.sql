-- Citus carries out what a view reads of distributed tables with the rights of the role that reads the view, and that role may
-- not read them. There the views read through these functions, which show a session what its views would.
CREATE OR REPLACE FUNCTION cerebro._visit_rows() RETURNS SETOF cerebro._visit
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
SELECT v.* FROM cerebro._visit AS v
WHERE v.run_id = ANY (ARRAY(
    SELECT r.run_id FROM cerebro._run AS r
    WHERE pg_has_role(session_user, r.owner, 'USAGE') OR pg_has_role(session_user, 'pg_monitor', 'USAGE')))
$$;
COMMENT ON FUNCTION cerebro._visit_rows() IS 'Internal: on Citus, the visits of the runs that this session may know of.';

CREATE OR REPLACE FUNCTION cerebro._evaluation_rows() RETURNS SETOF cerebro._evaluation
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
SELECT e.* FROM cerebro._evaluation AS e
WHERE e.run_id = ANY (ARRAY(
    SELECT r.run_id FROM cerebro._run AS r
    WHERE pg_has_role(session_user, r.owner, 'USAGE') OR pg_has_role(session_user, 'pg_monitor', 'USAGE')))
$$;
COMMENT ON FUNCTION cerebro._evaluation_rows() IS 'Internal: on Citus, the evaluations of the runs that this session may know of.';

CREATE OR REPLACE FUNCTION cerebro._state_size_rows() RETURNS TABLE (run_id bigint, mst_key integer, step integer, bytes bigint)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
SELECT s.run_id, s.mst_key, s.step, sum(octet_length(s.data)) FROM cerebro._state AS s
WHERE s.run_id = ANY (ARRAY(
    SELECT r.run_id FROM cerebro._run AS r
    WHERE pg_has_role(session_user, r.owner, 'USAGE') OR pg_has_role(session_user, 'pg_monitor', 'USAGE')))
GROUP BY s.run_id, s.mst_key, s.step
$$;
COMMENT ON FUNCTION cerebro._state_size_rows() IS 'Internal: on Citus, the sizes of the states of the runs that this session may know of.';

CREATE OR REPLACE FUNCTION cerebro._read_workers() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    view regclass;
    definition text;
    elsewhere text;
BEGIN
    FOR view IN
        SELECT c.oid FROM cerebro._members('pg_class') AS member JOIN pg_class AS c ON c.oid = member
        WHERE c.relkind = 'v' ORDER BY c.oid
    LOOP
        definition := pg_get_viewdef(view);
        elsewhere := regexp_replace(definition, '\mcerebro\._(visit|evaluation|state_size)\M', 'cerebro._\1_rows()', 'g');
        IF elsewhere <> definition THEN
            EXECUTE format('CREATE OR REPLACE VIEW %s WITH (security_barrier) AS %s', view, elsewhere);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION cerebro._read_workers() IS 'Internal: on Citus, has the views read what sessions on workers have left.';
