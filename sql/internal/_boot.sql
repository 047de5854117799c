CREATE OR REPLACE FUNCTION cerebro._boot() RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import ctypes
import sys
from importlib.util import find_spec


def refuse(message, **fields):
    # The name of the class begins the message.
    raise type("cerebro", (plpy.Error,), {"__module__": "__main__", **fields})(message)


# On Greenplum a cancel would interrupt Python wherever it is, and leave modules half imported.
if hasattr(ctypes.PyDLL(None), "PLy_enter_python_intepreter"):
    ctypes.c_bool.in_dll(ctypes.PyDLL(None), "PLy_enter_python_intepreter").value = False
packages, site = "@PYTHON_DIR@", "@SITE_PACKAGES@"
loaded = sys.modules.get("cerebro_plpy")
if loaded is not None and not loaded.__file__.startswith(packages + "/"):
    refuse(
        "this session has loaded another version of cerebro",
        hint="Start a new session.",
        sqlstate="55000",
    )
# First, because the system's own folders and the home of the server's user may hold the same packages in other versions.
for folder in (site, packages):
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)
if find_spec("cerebro_plpy") is None:
    refuse(
        f"none of the Python code is in {packages}",
        hint="Run make install for this version of cerebro and this server. Where it stands in another folder by now,"
        " as after pg_upgrade, docs/operations.md has the command that tells the database.",
        sqlstate="58P01",
    )
missing = [name for name in ("numpy", "psycopg2", "keras") if find_spec(name) is None]
if not any(find_spec(name) for name in ("tensorflow", "jax", "torch")):
    missing.append("tensorflow (or jax, or torch)")
if missing:
    refuse(
        f"Python package {', '.join(missing)} is missing",
        detail=f"Packages are looked for in {site}.",
        hint="As the administrator of the server run: python%d.%d -m pip install --require-hashes --target=%s -r %s"
        % (*sys.version_info[:2], site, packages + "/requirements.lock"),
        sqlstate="58P01",
    )
import cerebro_plpy.engine.apart
import cerebro_plpy.entry

cerebro_plpy.engine.apart.watch()
# Not in GD: what is there goes with every function of a user's own PL/Python that is pickled.
sys.modules["cerebro_plpy.session"] = cerebro_plpy.entry
$$;
COMMENT ON FUNCTION cerebro._boot() IS
'Internal: loads the Python side of the extension once per session, from the folders that were fixed when it was installed.';
