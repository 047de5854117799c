"""The programs and the shared folder of the PostgreSQL installation that the tests use."""

from __future__ import annotations

import subprocess
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def _config(*arguments: str) -> str:
    line = f'. "{TOOLS}/common.sh" && "$(own_pg_config)" "$@"'
    command = ["bash", "-c", line, "_", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def program(name: str) -> str:
    return str(Path(_config("--bindir")) / name)


def shared_folder() -> Path:
    return Path(_config("--sharedir"))
