"""tools/greenplum-install copies with the real rsync, to folders that stand for other hosts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "greenplum-install"
pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")

# In place of ssh: the command is the far side's rsync, which is to write below the folder of the host.
SHELL = """#!/bin/bash
host=$1; shift
[ -d "$HOSTS/$host" ] || { echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255; }
[ "${!#}" = / ] || { echo "not to the root: $*" >&2; exit 2; }
exec "${@:1:$#-1}" "$HOSTS/$host/"
"""
CONFIG = '#!/bin/sh\n[ "$1" = --sharedir ] && echo "$SHARE"\n'
PSQL = '#!/bin/sh\ncat "$HOSTS/names"\n'


class Cluster(NamedTuple):
    """The folders of this host, and the folders that stand for other hosts."""

    share: Path
    site: Path
    hosts: Path
    commands: Path

    def on(self, host: str, folder: Path) -> Path:
        return self.hosts / host / folder.relative_to("/")

    def install(self, *hosts: str) -> subprocess.CompletedProcess[str]:
        variables = {
            "PATH": f"{self.commands}:{os.environ['PATH']}",
            "PG_CONFIG": str(self.commands / "pg_config"),
            "RSYNC_RSH": str(self.commands / "shell"),
            "SHARE": str(self.share),
            "HOSTS": str(self.hosts),
        }
        return subprocess.run(
            [SCRIPT, *hosts], env={**os.environ, **variables}, capture_output=True, text=True
        )


def write(file: Path, text: str = "", mode: int = 0o644) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def tree(folder: Path) -> dict[str, str]:
    return {str(f.relative_to(folder)): f.read_text() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    share, site = tmp_path / "gp/share", tmp_path / "venv/lib/python3.11/site-packages"
    write(share / "extension/cerebro.control", "default_version = '0.2.0'\n")
    write(
        share / "extension/cerebro--0.2.0.sql",
        f'CREATE\npackages, site = "{share}/cerebro/0.2.0/python", "{site}"\n' * 2,
    )
    write(share / "extension/cerebro--0.1.0--0.2.0.sql", "an update")
    write(share / "extension/cerebro_madlib.control", "madlib")
    write(share / "extension/plpython3u.control", "somebody else's")
    write(share / "cerebro/0.2.0/python/cerebro_plpy/entry.py", "entry")
    write(share / "cerebro/0.1.0/python/cerebro_plpy/entry.py", "older")
    write(site / "numpy/__init__.py", "numpy")
    write(tmp_path / "venv/pyvenv.cfg")
    for name, text in (("shell", SHELL), ("pg_config", CONFIG), ("psql", PSQL)):
        write(tmp_path / "commands" / name, text, 0o755)
    (tmp_path / "hosts/sdw1").mkdir(parents=True)
    (tmp_path / "hosts/sdw2").mkdir()
    yield Cluster(share, site, tmp_path / "hosts", tmp_path / "commands")


def test_what_is_here_is_there_afterwards_in_the_same_places(cluster: Cluster) -> None:
    done = cluster.install("sdw1", "sdw2")
    assert (done.returncode, done.stdout) == (0, "sdw1: copied\nsdw2: copied\n"), done.stderr
    for host in ("sdw1", "sdw2"):
        assert tree(cluster.on(host, cluster.share / "cerebro")) == tree(cluster.share / "cerebro")
        assert tree(cluster.on(host, cluster.site)) == tree(cluster.site)
        own = {name for name in tree(cluster.share / "extension") if name.startswith("cerebro")}
        assert set(tree(cluster.on(host, cluster.share / "extension"))) == own


def test_the_hosts_of_the_cluster_are_asked_for(cluster: Cluster) -> None:
    here = os.uname().nodename
    write(cluster.hosts / "names", f"sdw2\n{here}\n")
    done = cluster.install()
    assert (done.returncode, done.stdout) == (0, f"sdw2: copied\n{here}: is this host\n"), done.stderr
    assert tree(cluster.hosts / "sdw1") == {}


def test_a_cluster_that_does_not_answer_is_an_error(cluster: Cluster) -> None:
    done = cluster.install()
    assert done.returncode == 1
    assert "cerebro: the cluster does not answer" in done.stderr


def test_a_host_that_is_down_is_named_and_the_others_are_served(cluster: Cluster) -> None:
    done = cluster.install("down", "sdw1")
    assert (done.returncode, done.stdout) == (1, "sdw1: copied\n")
    assert "host down port 22: Connection refused" in done.stderr
    assert "cerebro: not copied to down: " in done.stderr
    assert tree(cluster.on("sdw1", cluster.site)) == tree(cluster.site)


def test_what_is_gone_here_goes_there_and_nothing_else_does(cluster: Cluster) -> None:
    stale = [cluster.share / "cerebro/0.0.9/python/entry.py", cluster.site / "numpy-1.dist-info/METADATA"]
    others = [
        cluster.share / "extension/postgis.control",
        cluster.share / "postgis.txt",
        cluster.site.parent / "other.py",
        cluster.site.parents[2] / "bin/python",
    ]
    for file in (*stale, *others):
        write(cluster.on("sdw1", file))
    assert cluster.install("sdw1").returncode == 0
    assert not [file for file in stale if cluster.on("sdw1", file).exists()]
    assert [file for file in others if cluster.on("sdw1", file).exists()] == others


def test_a_folder_that_is_no_venv_may_have_packages_of_others(cluster: Cluster) -> None:
    (cluster.site.parents[2] / "pyvenv.cfg").unlink()
    other = write(cluster.on("sdw1", cluster.site / "other/__init__.py"))
    assert cluster.install("sdw1").returncode == 0
    assert other.exists()
    assert cluster.on("sdw1", cluster.site / "numpy/__init__.py").exists()


def test_folders_above_stay_as_they_are(cluster: Cluster) -> None:
    """Folders above the copied ones belong to the operating system or the server, and do not change."""
    above = cluster.on("sdw1", cluster.share)
    above.mkdir(parents=True)
    above.chmod(0o750)
    os.utime(above, (10**9, 10**9))
    before = above.parent.stat()
    assert cluster.install("sdw1").returncode == 0
    assert above.stat().st_mode & 0o777 == 0o750
    assert above.parent.stat().st_mtime_ns == before.st_mtime_ns
    assert cluster.share.stat().st_mode & 0o777 != 0o750


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("extension/cerebro.control", "has no cerebro.control: run make install"),
        ("cerebro/0.2.0/python", "cerebro/0.2.0/python is not there: run make install"),
    ],
)
def test_nothing_is_copied_of_half_an_installation(cluster: Cluster, lost: str, said: str) -> None:
    place = cluster.share / lost
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    done = cluster.install("sdw1")
    assert done.returncode == 1
    assert said in done.stderr
    assert tree(cluster.hosts) == {}
