CREATE OR REPLACE VIEW cerebro.sizes WITH (security_barrier) AS
SELECT
    r.run_id,
    r.model_table,
    s.states,
    s.state_bytes,
    w.weight_bytes,
    v.visits,
    v.hopped_bytes,
    f.frozen_bytes
FROM cerebro._visible_run AS r
CROSS JOIN LATERAL (
    SELECT
        pg_catalog.count(*) AS states,
        COALESCE(pg_catalog.sum(x.bytes), 0)::bigint AS state_bytes
    FROM (
        SELECT pg_catalog.sum(pg_catalog.octet_length(y.data)) AS bytes FROM cerebro._state AS y
        WHERE y.run_id = r.run_id GROUP BY y.mst_key, y.step
    ) AS x
) AS s
CROSS JOIN LATERAL (
    SELECT COALESCE(pg_catalog.sum(pg_catalog.octet_length(x.weights)), 0)::bigint AS weight_bytes
    FROM cerebro._weights AS x WHERE x.run_id = r.run_id
) AS w
CROSS JOIN LATERAL (
    SELECT pg_catalog.count(*) FILTER (WHERE x.segment >= 0) AS visits, COALESCE(pg_catalog.sum(x.state_bytes), 0)::bigint AS hopped_bytes
    FROM cerebro._visit AS x WHERE x.run_id = r.run_id
) AS v
CROSS JOIN LATERAL (
    SELECT COALESCE(pg_catalog.sum(pg_catalog.octet_length(x.data)), 0)::bigint AS frozen_bytes
    FROM cerebro._frozen AS x WHERE x.run_id = r.run_id
) AS f;
COMMENT ON VIEW cerebro.sizes IS 'What your runs keep in the database besides their result tables; cerebro.forget removes it.';
COMMENT ON COLUMN cerebro.sizes.run_id IS 'Number of the run';
COMMENT ON COLUMN cerebro.sizes.model_table IS 'Table with the models';
COMMENT ON COLUMN cerebro.sizes.states IS 'Number of stored states';
COMMENT ON COLUMN cerebro.sizes.state_bytes IS 'Their size in bytes, without what is frozen';
COMMENT ON COLUMN cerebro.sizes.weight_bytes IS 'Size of the weights that the run started from';
COMMENT ON COLUMN cerebro.sizes.visits IS 'Number of visits in the log';
COMMENT ON COLUMN cerebro.sizes.hopped_bytes IS 'Bytes of all states that visits have made, which hop from segment to segment: configs x epochs x segments x the size of a state';
COMMENT ON COLUMN cerebro.sizes.frozen_bytes IS 'Size of the weights that no training changes, such as those of frozen layers: they stand once for all states that share them';
