-- It ends transactions: so that others see that it goes on, and so that a failure is kept. Such a procedure can have no SET
-- clause; every name in it is qualified.
CREATE OR REPLACE PROCEDURE cerebro.run_schedule(name text, alias text DEFAULT 'default')
LANGUAGE plpgsql AS $$
DECLARE
    begun record;
    result record;
    code text;
    problem text;
BEGIN
    SELECT b.* INTO begun FROM cerebro._begin_scheduled($1, $2) AS b;
    COMMIT;
    IF begun.schedule_run_id IS NULL THEN
        RETURN;
    END IF;
    -- Held as long as the training's transaction lasts, and beyond whatever unlocks the locks of this session.
    PERFORM pg_catalog.pg_try_advisory_xact_lock(begun.mark, begun.number);
    PERFORM pg_catalog.pg_advisory_unlock(begun.mark, begun.number);
    BEGIN
        SELECT r.* INTO result
        FROM cerebro.retrain($1, begun.source, begun.budget, begun.promote, $2, begun.options) AS r;
        PERFORM cerebro._end_scheduled(begun.schedule_run_id, 'done', result.version, result.promoted, result.reason);
    EXCEPTION WHEN query_canceled OR OTHERS THEN
        code := SQLSTATE;
        problem := SQLERRM;
    END;
    IF problem IS NOT NULL THEN
        PERFORM cerebro._end_scheduled(begun.schedule_run_id, 'failed', NULL, NULL, problem);
        COMMIT;
        RAISE EXCEPTION USING ERRCODE = code, MESSAGE = problem;
    END IF;
END
$$;
COMMENT ON PROCEDURE cerebro.run_schedule(text, text) IS
'Carries out a schedule of cerebro.schedule once; pg_cron''s job calls it. It trains the registered model again and keeps what came of it in cerebro.schedule_runs. It does nothing while another run of the same schedule is under way. Call it outside a transaction, since it commits.';
