"""A driver's list of GPUs that are not there: what chooses among them is tested, no engine runs on one."""

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
# A superuser's functions: a process of the server is given a variable of the environment, or tells it.
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
    """A folder with an nvidia-smi that lists GPUs of these names, for any user."""
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
    """Set a variable in the session's process and in those that it has on segments, or in some of these."""
    if not contents:
        trial.sql("SELECT set_variable(%s, %s)", name, value)
    if trial.topology == "greenplum":
        trial.sql(
            "SELECT set_variable(%s, %s) FROM gp_dist_random('gp_id')"
            " WHERE %s::int[] = '{}' OR gp_segment_id = ANY (%s::int[])",
            name, value, list(contents), list(contents),
        )  # fmt: skip


def show(trial: Trial, folder: Path, contents: Sequence[int] = ()) -> None:
    """Have the session's processes find that nvidia-smi first."""
    everywhere(trial, "PATH", f"{folder}:/usr/bin:/bin", contents)
