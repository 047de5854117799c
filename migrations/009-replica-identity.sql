-- Where a publication has all tables, a row of a table without a key can be removed only if this is said. Greenplum has no publications.

DO $$
BEGIN
    IF version() NOT LIKE '%Greenplum%' THEN
        ALTER TABLE cerebro._run_event REPLICA IDENTITY FULL;
    END IF;
END
$$;
