-- It looks at what there is and imports nothing, so that it answers where something is missing.
CREATE OR REPLACE FUNCTION cerebro._host_facts() RETURNS text
LANGUAGE plpython3u
SET search_path = pg_catalog, pg_temp AS $$
import json, os, platform, socket, subprocess, sys
from importlib.metadata import distributions

packages, site = "@PYTHON_DIR@", "@SITE_PACKAGES@"
facts = {"host": socket.gethostname(), "python": sys.version.split()[0], "gpus": [], "devices": [], "cores": len(os.sched_getaffinity(0))}
# Which of several ways a sum is computed depends on what the processor can do, and virtual machines hide some of that.
try:
    with open("/proc/cpuinfo") as told:
        processor = dict(reversed([tuple(map(str.strip, line.split(":", 1))) for line in told if ":" in line]))
except OSError:
    processor = {}
can = set(processor.get("flags", processor.get("Features", "")).split())
best = next((name for name in ("amx_tile", "avx512f", "avx2", "avx", "sve", "asimd") if name in can), None)
facts["cpu"] = " with ".join(filter(None, (processor.get("model name", platform.machine()), best)))
wanted = {"numpy": "numpy", "psycopg2": "psycopg2", "psycopg2-binary": "psycopg2", "keras": "keras", "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow", "jax": "jax", "torch": "torch"}
# A name of a package is the same with a dash or a line below.
names = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in distributions(path=[site])}
found = {wanted[name]: version for name, version in names.items() if name in wanted}
facts["engines"] = {name: version for name, version in found.items() if name in ("keras", "tensorflow", "jax", "torch")}
# The folder of the extension's Python code is named for its version.
if os.path.isfile(packages + "/cerebro_plpy/entry.py"):
    facts["cerebro"] = os.path.basename(os.path.dirname(packages))
missing = [] if "cerebro" in facts else ["cerebro's Python code in " + packages]
missing += [name + " in " + site for name in ("numpy", "psycopg2", "keras") if name not in found]
if not {"tensorflow", "jax", "torch"} & set(found):
    missing.append("tensorflow (or jax, or torch) in " + site)
facts["missing"] = ", ".join(missing) or None
# Those that the server's administrator lets its processes see; an engine that runs here has narrowed that to its own.
seen = os.environ.get("CEREBRO_SEEN_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
try:
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=index,uuid,memory.total,pci.bus_id,name", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, timeout=20)
    # Where there is no driver it says so in place of the list.
    lines = listed.stdout.splitlines() if listed.returncode == 0 else []
    for index, uuid, memory, bus, name in (map(str.strip, line.split(",", 4)) for line in lines if line.count(",") >= 4):
        if seen == "all" or {index, uuid} & {own.strip() for own in seen.split(",")}:
            facts["gpus"].append(name)
            facts["devices"].append(
                {"index": int(index), "id": uuid, "memory_mb": int(memory) if memory.isdigit() else None, "bus": bus, "name": name})
except (OSError, subprocess.TimeoutExpired):
    pass
return json.dumps(facts)
$$;
COMMENT ON FUNCTION cerebro._host_facts() IS
'Internal: what this process finds on its host: Python, engines, processors, GPUs, and what is missing, as JSON.';
