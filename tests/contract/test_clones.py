"""Two clones of this repository on one machine do not disturb each other: each has its own test server."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Clone:
    """A copy of this repository's files, which uses the Python packages of this checkout."""

    def __init__(self, folder: Path, version: str) -> None:
        self.folder = folder
        self.version = version
        folder.mkdir()
        # A file that is not committed yet belongs to what is tested.
        listed = "git ls-files -z --cached --others --exclude-standard"
        run(f"{listed} | tar --null --ignore-failed-read -T - -c | tar -C {folder} -x", ROOT)
        control = folder / "cerebro.control"
        control.write_text(re.sub(r"(default_version = )'.*'", rf"\1'{version}'", control.read_text()))
        self.own = Path(run(". tools/common.sh && local_dir", folder))
        self.own.mkdir(parents=True, exist_ok=True)
        if self.own != folder / ".local":
            (folder / ".local").symlink_to(self.own)
        (self.own / "venv").symlink_to((ROOT / ".local" / "venv").resolve())

    def up(self) -> None:
        run("make -s deploy && tools/cluster up", self.folder)

    def sql(self, statement: str) -> str:
        return run(
            'eval "$(tools/cluster env)" && "$(dirname "$(. tools/common.sh && own_pg_config)")"/psql -XAtq'
            f' -c "{statement}"',
            self.folder,
        )

    def remove(self) -> None:
        (self.own / "venv").unlink()
        run("tools/cluster remove", self.folder)


def run(command: str, folder: Path) -> str:
    # The variables for this session's own server and make must not reach the clones.
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PGHOST", "PGPORT", "PGDATA", "MAKE", "MFLAGS"))
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=kept, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def shared_files() -> dict[str, str]:
    """Return the hashes, by path, of the extension's files in the folders of the machine's own PostgreSQL."""
    folder = Path(run('. tools/common.sh && "$(find_pg_config)" --sharedir', ROOT))
    files = [*folder.glob("extension/cerebro*"), *folder.glob("cerebro/**/*.py")]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def clones(tmp_path: Path) -> Iterator[tuple[Clone, Clone]]:
    made: list[Clone] = []
    try:
        for name, version in (("one", "7.1.0"), ("two", "7.2.0")):
            made.append(Clone(tmp_path / name, version))
        yield made[0], made[1]
    finally:
        for clone in made:
            clone.remove()


@pytest.mark.postgresql
def test_each_has_its_own_server_and_nothing_reaches_the_machines(clones: tuple[Clone, Clone]) -> None:
    before = shared_files()
    for clone in clones:
        clone.up()
        clone.sql("CREATE EXTENSION cerebro CASCADE")
    # Query both only now: installing the second must not have changed the first.
    for clone in clones:
        assert clone.sql("SELECT extversion FROM pg_extension WHERE extname = 'cerebro'") == clone.version
        assert f"Cerebro DB {clone.version}," in clone.sql("SELECT cerebro.version()")
        at = clone.sql("SELECT prosrc FROM pg_proc WHERE proname = '_boot'")
        assert f"{clone.own}/server/" in at
    assert shared_files() == before
