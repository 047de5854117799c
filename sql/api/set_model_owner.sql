CREATE OR REPLACE FUNCTION cerebro.set_model_owner(
    name text,
    owner name
) RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import sys
if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
sys.modules["cerebro_plpy.session"].call("set_model_owner", name, owner)
$$;
COMMENT ON FUNCTION cerebro.set_model_owner(text, name) IS
'Gives a registered model to another role, under the rules of ALTER ... OWNER TO: the owner can give it to a role that the owner is a member of. A superuser can give any model to any role, even if the owner was dropped. The former owner keeps only what it is granted. When a superuser calls this function, it also calls grant_usage for the role.';
