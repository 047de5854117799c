CREATE OR REPLACE FUNCTION cerebro.refresh_features(
    features_table varchar
) RETURNS bigint
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].call(
    "refresh_features", features_table)
$$;
COMMENT ON FUNCTION cerebro.refresh_features(varchar) IS
'Updates a table of features after cerebro.append_rows on the packed table that it was made from, and returns the number of rows that were added. Only the new rows go through the net. It fails if the net''s weights have changed, or if the packed table was packed again.';
