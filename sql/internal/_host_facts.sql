-- It looks at what there is and imports nothing, so that it answers where something is missing.
CREATE OR REPLACE FUNCTION cerebro._host_facts() RETURNS text
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import glob, json, os, socket, subprocess, sys
from importlib.metadata import distributions

packages, site = "@PYTHON_DIR@", "@SITE_PACKAGES@"
facts = {"host": socket.gethostname(), "python": sys.version.split()[0], "gpus": [], "cores": len(os.sched_getaffinity(0))}
wanted = {"numpy": "numpy", "psycopg2": "psycopg2", "psycopg2-binary": "psycopg2", "keras": "keras", "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow", "jax": "jax", "torch": "torch"}
found = {wanted[d.metadata["Name"].lower()]: d.version for d in distributions(path=[site]) if d.metadata["Name"].lower() in wanted}
facts["engines"] = {name: version for name, version in found.items() if name in ("keras", "tensorflow", "jax", "torch")}
# The folder of the extension's Python code is named for its version.
if os.path.isfile(packages + "/cerebro_plpy/entry.py"):
    facts["cerebro"] = os.path.basename(os.path.dirname(packages))
missing = [] if "cerebro" in facts else ["cerebro's Python code in " + packages]
missing += [name + " in " + site for name in ("numpy", "psycopg2", "keras") if name not in found]
if not {"tensorflow", "jax", "torch"} & set(found):
    missing.append("tensorflow (or jax, or torch) in " + site)
facts["missing"] = ", ".join(missing) or None
if glob.glob("/dev/nvidia[0-9]*"):
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, timeout=20)
        facts["gpus"] = [line.strip() for line in listed.stdout.splitlines() if line.strip()]
    except (OSError, subprocess.TimeoutExpired):
        pass
return json.dumps(facts)
$$;
COMMENT ON FUNCTION cerebro._host_facts() IS
'Internal: what this process finds on its host: Python, engines, GPUs, and what is missing, as JSON.';
