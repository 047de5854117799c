CREATE OR REPLACE FUNCTION cerebro.unregister_function(
    name text
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].function("unregister_function", name)
$$;
COMMENT ON FUNCTION cerebro.unregister_function IS
'Ends all versions of a registered function and the grants on it. Runs that use it cannot be resumed until the same source is registered again. Only a superuser may call it.';
