CREATE OR REPLACE FUNCTION cerebro.refresh_features(
    features_table varchar
) RETURNS bigint
LANGUAGE plpython3u AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].features("refresh", features_table)
$$;
COMMENT ON FUNCTION cerebro.refresh_features(varchar) IS
'Brings a table of features up to date after cerebro.append_rows on the packed table that it was made of: the new rows alone go through the net. An error where the net''s weights have changed, or the packed table was packed again. The result is the number of rows that were added.';
