CREATE OR REPLACE FUNCTION cerebro.revoke_function(
    name text,
    role name
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].function("revoke_function", name, role)
$$;
COMMENT ON FUNCTION cerebro.revoke_function IS
'Takes back what grant_function gave to a role. Only a superuser may call it.';
