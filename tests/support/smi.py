"""Fake versions of the program nvidia-smi, which list GPUs that do not exist.

They test the code that chooses GPUs; no engine uses these GPUs.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trial import Trial

_QUERY = "--query-gpu=index,uuid,memory.total,pci.bus_id,name --format=csv,noheader,nounits"
_SCRIPT = """#!/bin/sh
[ "$*" = "{query}" ] || {{ echo "Field is not a valid field to query."; exit 2; }}
cat <<'END'
{lines}
END
"""
# SQL functions for a superuser: set or return an environment variable of the server process.
FUNCTIONS = """
CREATE FUNCTION set_variable(name text, value text) RETURNS integer LANGUAGE plpython3u AS $$
import os
os.environ[name] = value
return 1
$$;
CREATE FUNCTION variable(name text) RETURNS text LANGUAGE plpython3u AS $$
import os
return os.environ.get(name)
$$;
"""


@contextmanager
def command(*names: str, memory: str = "16384") -> Iterator[Path]:
    """Create a folder with an nvidia-smi that lists GPUs of these names, and remove it afterwards."""
    lines = [f"{n}, GPU-{n}, {memory}, 00000000:0{n}:00.0, {name}" for n, name in enumerate(names)]
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    script = folder / "nvidia-smi"
    script.write_text(_SCRIPT.format(query=_QUERY, lines="\n".join(lines)))
    script.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def everywhere(trial: Trial, name: str, value: str, contents: Sequence[int] = ()) -> None:
    """Set an environment variable in the session's process and in its processes on all segments.

    If `contents` is given, set it only on the segments of Greenplum with these content ids.
    """
    if not contents:
        trial.sql("SELECT set_variable(%s, %s)", name, value)
    if trial.topology == "greenplum":
        trial.sql(
            "SELECT set_variable(%s, %s) FROM gp_dist_random('gp_id')"
            " WHERE %s::int[] = '{}' OR gp_segment_id = ANY (%s::int[])",
            name, value, list(contents), list(contents),
        )  # fmt: skip


def show(trial: Trial, folder: Path, contents: Sequence[int] = ()) -> None:
    """Set PATH in the session's processes so that they find the nvidia-smi in `folder` first."""
    everywhere(trial, "PATH", f"{folder}:/usr/bin:/bin", contents)
