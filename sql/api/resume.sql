CREATE OR REPLACE FUNCTION cerebro.resume(
    run_id bigint
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("resume", run_id)
$$;
COMMENT ON FUNCTION cerebro.resume IS
'Continues one of your runs that was interrupted, from its last committed visits. It leaves the same tables as an undisturbed run.';
