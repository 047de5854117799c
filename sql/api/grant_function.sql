CREATE OR REPLACE FUNCTION cerebro.grant_function(
    name text,
    role name
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
if "cerebro" not in GD: plpy.execute("SELECT cerebro._boot()")
return GD["cerebro"].function("grant_function", name, role)
$$;
COMMENT ON FUNCTION cerebro.grant_function IS
'Lets a role name a registered function in configs and architectures. The role public means every role. Only a superuser may call it.';
