-- What cerebro.run_schedule goes through: each notes in a transaction of its own what a run of a schedule does.
CREATE OR REPLACE FUNCTION cerebro._begin_scheduled(
    name text,
    alias text
) RETURNS TABLE (
    schedule_run_id bigint,
    mark integer,
    number integer,
    source varchar,
    budget interval,
    promote text,
    options jsonb
)
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("begin_scheduled", name, alias)
$$;
COMMENT ON FUNCTION cerebro._begin_scheduled(text, text) IS
'Internal: notes that a run of a schedule begins, and returns its number with its advisory lock and the arguments of the retraining; no number if another one goes on.';

CREATE OR REPLACE FUNCTION cerebro._end_scheduled(
    schedule_run_id bigint,
    outcome text,
    version integer,
    promoted boolean,
    reason text
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("end_scheduled", schedule_run_id, outcome, version, promoted, reason)
$$;
COMMENT ON FUNCTION cerebro._end_scheduled(bigint, text, integer, boolean, text) IS
'Internal: notes what a run of a schedule did that this session has begun.';
