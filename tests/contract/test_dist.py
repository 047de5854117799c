"""The archive for PGXN has the metadata that the specification of PGXN asks for, and can be installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from programs import program

ROOT = Path(__file__).resolve().parents[2]
# PGXN Meta Spec 1.0.0: http://pgxn.org/meta/spec.txt
REQUIRED = {"name", "version", "abstract", "maintainer", "license", "provides", "meta-spec"}
OPTIONAL = {
    "description", "generated_by", "tags", "no_index", "prereqs", "release_status", "resources"
}  # fmt: skip
TERM = re.compile(r"[A-Za-z][\w-]+")
SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-?[A-Za-z][\w.-]*)?")
PHASES = {"configure", "build", "test", "runtime", "develop"}
RELATIONS = {"requires", "recommends", "suggests", "conflicts"}


def make(folder: Path, *arguments: str) -> str:
    # Not the variables of a `make test` that started us.
    clean = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}
    done = subprocess.run(["make", "-s", *arguments], cwd=folder, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The top folder of the archive, unpacked."""
    if not (ROOT / ".git").exists():
        pytest.skip("the archive is made of what is committed, and this is no clone")
    archive = ROOT / make(ROOT, "dist").splitlines()[-1]
    folder = tmp_path_factory.mktemp("dist")
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
        for entry in file.infolist():
            if mode := entry.external_attr >> 16 & 0o777:
                (folder / entry.filename).chmod(mode)
    assert [path.name for path in folder.iterdir()] == [archive.stem]
    return folder / archive.stem


@pytest.fixture(scope="module")
def meta(unpacked: Path) -> dict[str, Any]:
    return json.loads((unpacked / "META.json").read_text())


def test_the_metadata_has_what_the_specification_asks_for(meta: dict[str, Any]) -> None:
    assert set(meta) >= REQUIRED
    assert not {key for key in set(meta) - REQUIRED - OPTIONAL if not re.match("[Xx]_", key)}
    assert TERM.fullmatch(meta["name"])
    assert meta["license"] == "apache_2_0"
    assert meta["maintainer"] and all(isinstance(name, str) and name for name in meta["maintainer"])
    assert meta["meta-spec"] == {"version": "1.0.0", "url": "http://pgxn.org/meta/spec.txt"}
    assert all(isinstance(tag, str) and 0 < len(tag) < 256 for tag in meta["tags"])
    assert len({tag.lower() for tag in meta["tags"]}) == len(meta["tags"])


def test_versions_are_semantic(meta: dict[str, Any], unpacked: Path) -> None:
    assert SEMVER.fullmatch(meta["version"])
    assert f"default_version = '{meta['version']}'" in (unpacked / "cerebro.control").read_text()
    assert unpacked.name == f"{meta['name']}-{meta['version']}"
    for phase, relations in meta["prereqs"].items():
        assert phase in PHASES
        for relation, wanted in relations.items():
            assert relation in RELATIONS
            assert all(version == 0 or SEMVER.fullmatch(version) for version in wanted.values())


def test_what_it_provides_is_in_the_archive(meta: dict[str, Any], unpacked: Path) -> None:
    assert set(meta["provides"]) == {"cerebro", "cerebro_madlib"}
    for name, provided in meta["provides"].items():
        assert TERM.fullmatch(name)
        assert provided["version"] == meta["version"]
        assert (unpacked / provided["file"]).is_file()
        assert (unpacked / provided.get("docfile", "README.md")).is_file()


def test_it_installs_from_itself(unpacked: Path, tmp_path: Path, meta: dict[str, Any]) -> None:
    """The unpacked archive is installed without git and without this repository's folder of packages."""
    make(
        unpacked,
        "install",
        f"PG_CONFIG={program('pg_config')}",
        f"DESTDIR={tmp_path}",
        "SITE_PACKAGES=/packages",
    )
    installed = {path.name: path for path in tmp_path.rglob("*") if path.is_file()}
    version = meta["version"]
    assert {"cerebro.control", "cerebro_madlib.control", "entry.py", "requirements.lock"} <= set(installed)
    script = installed[f"cerebro--{version}.sql"].read_text()
    assert '"/packages"' in script
    assert not re.search(r"@[A-Z_]+@", script)
    assert f"cerebro--0.1.0--{version}.sql" in installed
    modules = {path.relative_to(unpacked / "plpy") for path in (unpacked / "plpy").rglob("*.py")}
    (python,) = tmp_path.rglob("cerebro_plpy")
    assert {path.relative_to(python.parent) for path in python.rglob("*.py")} == modules
