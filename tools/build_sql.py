"""Put the extension's scripts together from migrations/ and sql/.

A fresh install runs every migration and then the idempotent files; an update runs the migrations that
came after the old version and then the same files, so that both end with the same objects.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path
from typing import NamedTuple

HEAD = """\\echo Use "{command}" to load this file. \\quit

SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL default_table_access_method = heap;
"""
# The first line of each function in Python loads the package by a statement. On Greenplum this statement must
# not run everywhere: cerebro_plpy/store/cluster/before_statement.py says why, and is run before it.
BOOT = """if "cerebro_plpy.session" not in sys.modules: plpy.execute("SELECT cerebro._boot()")
"""
CAREFUL_BOOT = """if "cerebro_plpy.session" not in sys.modules:
    from ctypes import PyDLL
    from os.path import isfile
    before = "@PYTHON_DIR@/cerebro_plpy/store/cluster/before_statement.py"
    if hasattr(PyDLL(None), "Gp_role") and isfile(before):
        from runpy import run_path
        why_not = run_path(before)["why_not"]("{function}")
        if why_not:
            raise type("cerebro", (plpy.Error,), {{"__module__": "__main__", **why_not}})(why_not["message"])
    plpy.execute("SELECT cerebro._boot()")
"""
RELEASED = "migrations/released.txt"
# The whole text of a file whose function is another function under a second name.
_SAME = re.compile(r"-- (The same as (\w+)\.)\n")
_COMMENT = re.compile(r"(\nCOMMENT ON [^;']*? IS\n)'(?:[^']|'')*'")


class BuildError(Exception):
    """Raised if a file of the source tree must not be built as it is."""


class Released(NamedTuple):
    """The released versions, and the digests of their files, from migrations/released.txt."""

    versions: dict[str, int]  # version -> number of its last migration
    hashes: dict[str, str]  # migration or install script, as a path within migrations/ -> SHA-256


def read_version(root: Path) -> str:
    found = re.search(r"^default_version *= *'([^']+)'", (root / "cerebro.control").read_text(), re.M)
    if not found:
        raise BuildError("cerebro.control states no default_version")
    return found.group(1)


def read_released(root: Path) -> Released:
    released = Released({}, {})
    for line in (root / RELEASED).read_text().splitlines():
        match line.split():
            case ["version", version, number]:
                released.versions[version] = int(number)
            case ["file", name, digest]:
                released.hashes[name] = digest
            case [first, *_] if not first.startswith("#"):
                raise BuildError(f"{RELEASED}: not understood: {line}")
            case _:
                pass
    return released


def number_of(migration: Path) -> int:
    found = re.match(r"(\d{3})-[a-z0-9-]+\.sql$", migration.name)
    if not found:
        raise BuildError(f"migrations/{migration.name}: the name must be NNN-words.sql")
    return int(found.group(1))


def digests(root: Path) -> dict[str, str]:
    """Return the present digests of all migrations and released install scripts, by path in migrations/."""
    folder = root / "migrations"
    files = sorted(folder.rglob("*.sql"))
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def read_migrations(root: Path, released: Released) -> list[Path]:
    """Return all migrations in order; raise BuildError if a released file has changed or is missing."""
    migrations = sorted((root / "migrations").glob("*.sql"))
    if [number_of(migration) for migration in migrations] != list(range(1, len(migrations) + 1)):
        raise BuildError("migrations must be numbered 001, 002, … without gaps")
    present = digests(root)
    for name, digest in released.hashes.items():
        if present.get(name) != digest:
            raise BuildError(f"migrations/{name} was released and must never change: write a new migration")
    return migrations


def source(file: Path) -> str:
    """Return the text of an SQL file.

    If the file only names another function, return that function's text under the name of this file.
    """
    text = file.read_text()
    same = _SAME.fullmatch(text)
    if same is None:
        return text
    other = file.with_stem(same[2]).read_text().replace(f"cerebro.{same[2]}", f"cerebro.{file.stem}")
    return _COMMENT.sub(rf"\1'{same[1]}'", other)


def read_idempotent(root: Path) -> list[Path]:
    rooms = ("internal", "api", "views")
    return [file for room in rooms for file in sorted((root / "sql" / room).glob("*.sql"))] + [
        root / "sql" / "privileges.sql",
    ]


def join(command: str, head: str, files: list[Path]) -> str:
    return "\n".join(
        [
            HEAD.format(command=command),
            head,
            *map(_careful, files),
        ]
    )


def _careful(file: Path) -> str:
    """Return the text of an SQL file, with checks at the head of functions in Python (`CAREFUL_BOOT`)."""
    return source(file).replace(BOOT, CAREFUL_BOOT.format(function=file.stem))


def build(root: Path) -> dict[str, str]:
    """Return the text of each generated file, by file name."""
    version, released = read_version(root), read_released(root)
    migrations, idempotent = read_migrations(root, released), read_idempotent(root)
    madlib = [root / "sql" / "madlib.sql"]
    built = {
        f"cerebro--{version}.sql": join(
            "CREATE EXTENSION cerebro", (root / "sql" / "head.sql").read_text(), [*migrations, *idempotent]
        ),
        f"cerebro_madlib--{version}.sql": join(
            "CREATE EXTENSION cerebro_madlib", (root / "sql" / "madlib_head.sql").read_text(), madlib
        ),
        "cerebro_madlib.control": (root / "cerebro_madlib.control.in").read_text(),
        "META.json": (root / "META.json.in").read_text(),
    }
    for old, last in released.versions.items():
        if old != version:
            newer = [migration for migration in migrations if number_of(migration) > last]
            built[f"cerebro--{old}--{version}.sql"] = join(
                "ALTER EXTENSION cerebro UPDATE", "", [*newer, *idempotent]
            )
            built[f"cerebro_madlib--{old}--{version}.sql"] = join(
                "ALTER EXTENSION cerebro_madlib UPDATE", "", madlib
            )
    return {name: text.replace("@VERSION@", version) for name, text in built.items()}


def write(folder: Path, built: dict[str, str]) -> None:
    """Write the files whose text has changed. Others keep their owner under `sudo make install`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in built.items():
        file = folder / name
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def freeze(root: Path) -> None:
    """Record the present version as released, with the digests of its migrations and install scripts.

    Raise BuildError if it is released already.
    """
    version, released = read_version(root), read_released(root)
    migrations = read_migrations(root, released)
    if version in released.versions:
        raise BuildError(f"version {version} is released already")
    scripts = {name: text for name, text in build(root).items() if name.endswith(f"--{version}.sql")}
    write(root / "migrations" / "released", {n: t for n, t in scripts.items() if n.count("--") == 1})
    lines = [f"file {name} {digest}" for name, digest in digests(root).items() if name not in released.hashes]
    with (root / RELEASED).open("a") as record:
        record.write("\n".join([*lines, f"version {version} {len(migrations):03d}", ""]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--freeze", action="store_true", help="record the present version as released")
    parser.add_argument("--out", type=Path, default=Path("build"))
    parser.add_argument("--python-dir", default="@PYTHON_DIR@", help="the server's folder of cerebro_plpy")
    parser.add_argument("--site-packages", default="@SITE_PACKAGES@", help="the server's folder of packages")
    options = parser.parse_args()
    try:
        if options.freeze:
            freeze(options.root)
            return
        paths = {"@PYTHON_DIR@": options.python_dir, "@SITE_PACKAGES@": options.site_packages}
        built = build(options.root)
        for placeholder, path in paths.items():
            built = {name: text.replace(placeholder, path) for name, text in built.items()}
        write(options.out, built)
    except BuildError as error:
        sys.exit(f"build_sql: {error}")


if __name__ == "__main__":
    main()
