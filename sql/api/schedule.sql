CREATE OR REPLACE FUNCTION cerebro.schedule(
    name text,
    schedule text,
    source varchar DEFAULT NULL,
    budget interval DEFAULT NULL,
    promote text DEFAULT 'if_better',
    alias text DEFAULT 'default',
    options jsonb DEFAULT NULL
) RETURNS bigint
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "schedule", name, schedule, source, budget, promote, alias, options)
$$;
COMMENT ON FUNCTION cerebro.schedule(text, text, varchar, interval, text, text, jsonb) IS
'Makes pg_cron train a registered model again by a schedule such as ''0 3 * * 1'' (Mondays at 3). The other arguments are those of cerebro.retrain. Returns the number of pg_cron''s job, which runs with the rights of the role that called this function. A model has one schedule for each alias; another call replaces it. The view cerebro.schedule_runs shows what came of it. Without pg_cron, the error says what another scheduler has to run.';
