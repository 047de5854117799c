CREATE OR REPLACE FUNCTION cerebro.hyperband_schedule(
    schedule_table varchar,
    r integer,
    eta integer DEFAULT 3,
    skip_last integer DEFAULT 0
) RETURNS void
LANGUAGE plpython3u AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].hyperband_schedule(schedule_table, r, eta, skip_last)
$$;
COMMENT ON FUNCTION cerebro.hyperband_schedule IS
'Creates a table of the rungs of a Hyperband search with these numbers: rung i of bracket s trains n_i configs until they have r_i epochs.';
