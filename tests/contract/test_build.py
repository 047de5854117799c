"""The built SQL scripts have one version, released scripts never change, and updates bring what is new."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("cerebro.control", "cerebro_madlib.control.in", "META.json.in", "migrations", "sql")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the files from which the SQL scripts are built, with an empty list of released versions."""
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    (tmp_path / "migrations" / "released.txt").write_text("# nothing yet\n")
    return tmp_path


def build(tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        ROOT / "tools" / "build_sql.py",
        "--root",
        tree,
        "--out",
        tree / "build",
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True)


def set_version(tree: Path, version: str) -> None:
    control = tree / "cerebro.control"
    control.write_text(
        re.sub(r"(?m)^default_version = .*", f"default_version = '{version}'", control.read_text())
    )


def version_of(tree: Path) -> str:
    found = re.search(r"(?m)^default_version = '(.*)'", (tree / "cerebro.control").read_text())
    assert found
    return found.group(1)


def test_the_version_stands_in_one_place() -> None:
    version = version_of(ROOT)
    told = {"cerebro.control", "CHANGELOG.md"}
    folders = ("docs", "migrations", "plpy", "sql", "tools")
    files = [file for file in ROOT.iterdir() if file.is_file() and file.suffix not in {".lock"}]
    files += [file for folder in folders for file in (ROOT / folder).rglob("*.*") if file.is_file()]
    saying = {
        str(file.relative_to(ROOT))
        for file in files
        if file.suffix not in {".pyc", ".png"}
        and re.search(rf"(?<![\d.]){re.escape(version)}(?![\d.])", file.read_text())
    }
    assert saying - {"migrations/released.txt"} == told


def test_every_placeholder_is_filled(tree: Path) -> None:
    assert build(tree, "--python-dir=/lib/python", "--site-packages=/lib/site").returncode == 0
    for file in (tree / "build").iterdir():
        assert not re.search(r"@[A-Z_]+@", file.read_text()), file.name
    assert '"/lib/python", "/lib/site"' in (tree / "build" / f"cerebro--{version_of(tree)}.sql").read_text()


def test_a_script_refuses_to_be_read_by_psql(tree: Path) -> None:
    build(tree)
    for file in (tree / "build").glob("*.sql"):
        assert re.match(
            r'\\echo Use "CREATE EXTENSION cerebro\w*" to load this file\. \\quit\n', file.read_text()
        )


def test_a_released_migration_never_changes(tree: Path) -> None:
    assert build(tree, "--freeze").returncode == 0
    assert build(tree).returncode == 0
    first = next((tree / "migrations").glob("001-*.sql"))
    first.write_text(first.read_text() + "-- a harmless word\n")
    refused = build(tree)
    assert refused.returncode != 0
    assert first.name in refused.stderr


def test_an_install_script_that_was_released_never_changes(tree: Path) -> None:
    """A release stores its install script with placeholders; a build fails if a stored script was changed."""
    build(tree, "--freeze")
    script = tree / "migrations" / "released" / f"cerebro--{version_of(tree)}.sql"
    built = build(tree, "--python-dir=/python", "--site-packages=/site")
    assert built.returncode == 0, built.stderr
    text = script.read_text()
    assert (tree / "build" / script.name).read_text() == text.replace("@PYTHON_DIR@", "/python").replace(
        "@SITE_PACKAGES@", "/site"
    )
    script.write_text(text + "-- a harmless word\n")
    assert script.name in build(tree).stderr


def test_a_released_migration_never_goes(tree: Path) -> None:
    build(tree, "--freeze")
    last = max((tree / "migrations").glob("*.sql"))
    last.unlink()
    refused = build(tree)
    assert refused.returncode != 0
    assert last.name in refused.stderr


def test_migrations_have_no_gaps(tree: Path) -> None:
    (tree / "migrations" / "900-late.sql").write_text("SELECT 1;\n")
    assert "without gaps" in build(tree).stderr


def test_a_version_is_released_once(tree: Path) -> None:
    assert build(tree, "--freeze").returncode == 0
    assert "released already" in build(tree, "--freeze").stderr


def test_an_update_brings_new_migrations_and_every_function(tree: Path) -> None:
    old = version_of(tree)
    build(tree, "--freeze")
    count = len(list((tree / "migrations").glob("*.sql")))
    new = tree / "migrations" / f"{count + 1:03d}-new.sql"
    new.write_text("CREATE TABLE cerebro.brand_new (x integer);\n")
    set_version(tree, "99.0.0")
    assert build(tree).returncode == 0
    fresh = (tree / "build" / "cerebro--99.0.0.sql").read_text()
    update = (tree / "build" / f"cerebro--{old}--99.0.0.sql").read_text()
    idempotent = fresh[fresh.index("brand_new") :]
    assert update.endswith(idempotent)
    assert "CREATE SCHEMA" not in update
    assert next((tree / "migrations").glob("001-*.sql")).read_text() not in update
    assert (tree / "build" / f"cerebro_madlib--{old}--99.0.0.sql").exists()


def test_a_second_build_writes_nothing(tree: Path) -> None:
    build(tree)
    before = {file: file.stat().st_mtime_ns for file in (tree / "build").iterdir()}
    build(tree)
    assert before == {file: file.stat().st_mtime_ns for file in (tree / "build").iterdir()}
