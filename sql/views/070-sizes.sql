CREATE OR REPLACE VIEW cerebro.sizes WITH (security_barrier) AS
SELECT
    r.run_id,
    r.model_table,
    COALESCE(s.states, 0) AS states,
    COALESCE(s.state_bytes, 0) AS state_bytes,
    COALESCE(w.weight_bytes, 0) AS weight_bytes,
    COALESCE(v.visits, 0) AS visits,
    COALESCE(v.hopped_bytes, 0) AS hopped_bytes,
    COALESCE(f.frozen_bytes, 0) AS frozen_bytes
-- For all runs at once, as in the view of runs.
FROM cerebro._visible_run AS r
LEFT JOIN (
    SELECT
        x.run_id,
        pg_catalog.count(*) AS states,
        pg_catalog.sum(x.bytes)::bigint AS state_bytes
    FROM cerebro._visible_state AS x
    GROUP BY x.run_id
) AS s ON s.run_id = r.run_id
LEFT JOIN (
    SELECT x.run_id, pg_catalog.sum(pg_catalog.octet_length(x.weights))::bigint AS weight_bytes FROM cerebro._weights AS x
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS w ON w.run_id = r.run_id
LEFT JOIN (
    SELECT
        x.run_id,
        pg_catalog.count(*) FILTER (WHERE x.segment >= 0) AS visits,
        pg_catalog.sum(x.state_bytes)::bigint AS hopped_bytes
    FROM cerebro._visible_visit AS x
    GROUP BY x.run_id
) AS v ON v.run_id = r.run_id
LEFT JOIN (
    SELECT x.run_id, pg_catalog.sum(pg_catalog.octet_length(x.data))::bigint AS frozen_bytes FROM cerebro._frozen AS x
    WHERE x.run_id = ANY (ARRAY(SELECT v.run_id FROM cerebro._visible_run AS v))
    GROUP BY x.run_id
) AS f ON f.run_id = r.run_id;
COMMENT ON VIEW cerebro.sizes IS 'What your runs keep in the database besides their result tables; cerebro.forget removes it.';
COMMENT ON COLUMN cerebro.sizes.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.sizes.model_table IS 'Table with the models';
COMMENT ON COLUMN cerebro.sizes.states IS 'Number of stored states';
COMMENT ON COLUMN cerebro.sizes.state_bytes IS 'Their size in bytes, without frozen weights';
COMMENT ON COLUMN cerebro.sizes.weight_bytes IS 'Size of the weights that the run started from';
COMMENT ON COLUMN cerebro.sizes.visits IS 'Number of visits in the log';
COMMENT ON COLUMN cerebro.sizes.hopped_bytes IS 'Bytes of all states that visits have made, which hop from segment to segment: configs x epochs x segments x the size of a state';
COMMENT ON COLUMN cerebro.sizes.frozen_bytes IS 'Size of the weights that no training changes, such as those of frozen layers; they are stored once for all states that share them';
