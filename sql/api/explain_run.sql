CREATE OR REPLACE FUNCTION cerebro.explain_run(
    run_id bigint,
    format text DEFAULT 'text'
) RETURNS TABLE ("QUERY PLAN" text)
LANGUAGE plpython3u
SET jit = off AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].explain("run", run_id, format)
$$;
COMMENT ON FUNCTION cerebro.explain_run IS
'Shows the plan of a run that goes on or is over: what runs before it would have made it expect, beside what it took. format is text or json.';
