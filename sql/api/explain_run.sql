CREATE OR REPLACE FUNCTION cerebro.explain_run(
    run_id bigint,
    format text DEFAULT 'text'
) RETURNS TABLE ("QUERY PLAN" text)
LANGUAGE plpython3u
SET jit = off AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "explain_run", run_id, format)
$$;
COMMENT ON FUNCTION cerebro.explain_run IS
'Shows the plan of a run that is under way or over. It compares what the run took with what earlier runs would have made you expect. format is text or json.';
