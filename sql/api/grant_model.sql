CREATE OR REPLACE FUNCTION cerebro.grant_model(
    name text,
    role name,
    privilege text
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("grant_model", *args)
$$;
COMMENT ON FUNCTION cerebro.grant_model IS
'Lets a role use a registered model with all its versions and aliases. privilege is predict (predict and evaluate, without reading weights), read (also read the net, its weights and its lineage, and copy versions) or manage (also add and drop versions, move aliases and grant). Each includes those before it, and replaces what the role was granted before. The role public means every role. When a superuser calls this function, it also calls grant_usage for the role.';
