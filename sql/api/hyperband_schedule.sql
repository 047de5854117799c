CREATE OR REPLACE FUNCTION cerebro.hyperband_schedule(
    schedule_table varchar,
    r integer,
    eta integer DEFAULT 3,
    skip_last integer DEFAULT 0
) RETURNS void
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call(
    "hyperband_schedule", schedule_table, r, eta, skip_last)
$$;
COMMENT ON FUNCTION cerebro.hyperband_schedule IS
'Creates a table of the rungs of a Hyperband search with these parameters: rung i of bracket s trains n_i configs until they have r_i epochs.';
