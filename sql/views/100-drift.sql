CREATE OR REPLACE VIEW cerebro.drift WITH (security_barrier) AS
SELECT
    pg_catalog.format('%I.%I', n.nspname, c.relname) AS packed_table,
    d.version,
    d.at,
    d.rows,
    d.column_name,
    d.nulls_before,
    d.nulls,
    d.unseen_before,
    d.unseen,
    d.mean_before,
    d.mean,
    d.stability
FROM cerebro._drift AS d
JOIN pg_catalog.pg_class AS c ON c.oid = d.packed::oid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE pg_catalog.pg_has_role(d.owner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');
COMMENT ON VIEW cerebro.drift IS 'How the rows that you added to packed tables differ from those before them. It has a row for each column and each call of append_rows.';
COMMENT ON COLUMN cerebro.drift.packed_table IS 'Packed table to which the rows were added';
COMMENT ON COLUMN cerebro.drift.version IS 'Version of the packed table that the rows made';
COMMENT ON COLUMN cerebro.drift.at IS 'When they were added';
COMMENT ON COLUMN cerebro.drift.rows IS 'How many were added';
COMMENT ON COLUMN cerebro.drift.column_name IS 'Column of the source; for a table that was packed without the option columns, an input of the net; or a label';
COMMENT ON COLUMN cerebro.drift.nulls_before IS 'Share of NULL in the rows that the table was packed from';
COMMENT ON COLUMN cerebro.drift.nulls IS 'Share of NULL in the rows that were added';
COMMENT ON COLUMN cerebro.drift.unseen_before IS 'Share of values, or of words, in the rows before that have no place of their own, because they are rare';
COMMENT ON COLUMN cerebro.drift.unseen IS 'Share of such values in the rows that were added, because they are rare or unseen';
COMMENT ON COLUMN cerebro.drift.mean_before IS 'Mean in the rows that the table was packed from; for dates, in seconds since 1970';
COMMENT ON COLUMN cerebro.drift.mean IS 'Mean in the rows that were added';
COMMENT ON COLUMN cerebro.drift.stability IS 'Population stability index between both: below 0.1 they are alike, above 0.25 they differ';
