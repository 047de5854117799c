CREATE OR REPLACE FUNCTION cerebro.refresh_features(
    features_table varchar
) RETURNS bigint
LANGUAGE plpython3u AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
return sys.modules["cerebro_plpy.session"].features("refresh", features_table)
$$;
COMMENT ON FUNCTION cerebro.refresh_features(varchar) IS
'Brings a table of features up to date after cerebro.append_rows on the packed table that it was made of: the new rows alone go through the net. An error where the net''s weights have changed, or the packed table was packed again. The result is the number of rows that were added.';
