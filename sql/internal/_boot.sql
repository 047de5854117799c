CREATE OR REPLACE FUNCTION cerebro._boot() RETURNS void
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import ctypes
import sys
from importlib.util import find_spec

# On Greenplum a cancel would interrupt Python wherever it is, and leave modules half imported.
if hasattr(ctypes.PyDLL(None), "PLy_enter_python_intepreter"):
    ctypes.c_bool.in_dll(ctypes.PyDLL(None), "PLy_enter_python_intepreter").value = False
packages, site = "@PYTHON_DIR@", "@SITE_PACKAGES@"
loaded = sys.modules.get("cerebro_plpy")
if loaded is not None and not loaded.__file__.startswith(packages + "/"):
    plpy.error(
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
    plpy.error(
        f"cerebro finds none of its Python code in {packages}",
        hint="Run make install for this version of cerebro and this server. Where it stands in another folder by now,"
        " as after pg_upgrade, docs/operations.md has the command that tells the database.",
        sqlstate="58P01",
    )
missing = [name for name in ("numpy", "psycopg2", "keras") if find_spec(name) is None]
if not any(find_spec(name) for name in ("tensorflow", "jax", "torch")):
    missing.append("tensorflow (or jax, or torch)")
if missing:
    plpy.error(
        f"cerebro finds no Python package {', '.join(missing)}",
        detail=f"Packages are looked for in {site}.",
        hint="As the administrator of the server run: python%d.%d -m pip install --require-hashes --target=%s -r %s"
        % (*sys.version_info[:2], site, packages + "/requirements.lock"),
        sqlstate="58P01",
    )
import cerebro_plpy.engine.apart
import cerebro_plpy.entry

cerebro_plpy.engine.apart.watch()
GD["cerebro"] = cerebro_plpy.entry
$$;
COMMENT ON FUNCTION cerebro._boot() IS
'Internal: loads the Python side of the extension once per session, from the folders that were fixed when it was installed.';
