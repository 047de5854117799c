CREATE OR REPLACE FUNCTION cerebro.advise(
    run_id bigint
) RETURNS TABLE (
    mst_key integer,
    finding text,
    epoch integer,
    advice text
)
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call("advise", run_id)
$$;
COMMENT ON FUNCTION cerebro.advise(bigint) IS
'Reads the losses of a run''s configs and says what is wrong, with what to try next: a loss that diverges, one that still falls at the end, a config that learns the training rows by heart, and configs that are all alike. epoch says since when. It returns no rows if all is well.';
