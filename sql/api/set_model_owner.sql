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
'Gives a registered model to another role, as ALTER ... OWNER TO does. Its owner may do so, to a role that the owner is a member of, and a superuser to any role, also for a model whose owner was dropped. The role before keeps what it is granted. If a superuser calls it, it also calls grant_usage.';
