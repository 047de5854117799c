"""The README's shell commands work: the demonstration, and the installation, here into a folder."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from programs import program

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"^```sh\n(.*?)^```\n", (ROOT / "README.md").read_text(), re.S | re.M)


def shell(script: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_command_is_left_out() -> None:
    """The README has three blocks of commands: two are tested here, and the Docker block in tests/docker."""
    assert [block.split()[0] for block in BLOCKS] == ["make", "docker", "sudo"]


@pytest.mark.doors("demo", "pack fit compare predict")
def test_the_demonstration(server: None) -> None:
    assert "Leaderboard: the best five of sixteen" in shell(BLOCKS[0])


def test_the_installation(tmp_path: Path) -> None:
    """The commands install into a folder by DESTDIR, without the rights of root."""
    script = BLOCKS[2].replace("sudo ", "").replace("/opt/cerebro", str(tmp_path / "venv"))
    script = script.replace("/usr/bin/pg_config", f"{program('pg_config')} DESTDIR={tmp_path}/root")
    shell(script)
    assert list(tmp_path.glob("venv/lib/python3*/site-packages/keras"))
    scripts = [file.read_text() for file in (tmp_path / "root").rglob("cerebro--*.sql")]
    assert any(f"{tmp_path}/venv/lib/python3" in script for script in scripts)
