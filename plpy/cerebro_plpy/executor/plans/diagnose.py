"""cerebro.diagnose: check that the server has all that training needs, and advise on what is missing."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cerebro_plpy.database import Database
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.programs import NotTrusted, are_refused, check_folder, find_folder, shown, used_bytes
from cerebro_plpy.store import session
from cerebro_plpy.topology.choose import choose_local, cores

OK, NOTE, WRONG = "ok", "note", "wrong"
ENGINES = {"tensorflow": ("tensorflow", "tensorflow-cpu"), "jax": ("jax",), "torch": ("torch",)}
SPELLED = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
PACKAGES = ("numpy", "keras", "optuna", "psycopg2-binary")
LOCK = Path(__file__).resolve().parents[3] / "requirements.lock"
# The memory of a session with Keras, before it holds any rows.
LEAST_MEMORY_MB = 1024
LEAST_DISK_MB = 2048


class Finding(NamedTuple):
    """The result of one check: the item checked, its status, the facts found, and advice if needed."""

    item: str
    status: str
    found: str
    advice: str | None = None


def diagnose(db: Database) -> list[Finding]:
    return [
        *_python(), *_packages(), *_engines(db), *_programs(db), *_checks(db), *_logins(db), _room(db),
        *_machine(db),
    ]  # fmt: skip


def versions(db: Database) -> str:
    """Return the versions of all components, as one line of text."""
    packages = {
        "Keras": ("keras",),
        **{spelled: ENGINES[name] for name, spelled in SPELLED.items()},
        "NumPy": ("numpy",),
        "Optuna": ("optuna",),
        "psycopg2": ("psycopg2-binary", "psycopg2"),
    }
    found = {
        "Cerebro DB": session.version(db),
        **session.server_versions(db),
        "Python": sys.version.split()[0],
    }
    for spelled, names in packages.items():
        known = [version for name in names if (version := _version(name)) is not None]
        found |= {spelled: known[0]} if known else {}
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _python() -> Iterator[Finding]:
    folder = importlib.metadata.distribution("numpy").locate_file("")
    yield Finding("Python", OK, f"{sys.version.split()[0]}, packages in {folder}")


def _packages() -> Iterator[Finding]:
    locked = _locked()
    for name in PACKAGES:
        found = _version(name)
        if found is None:
            yield Finding(f"package {name}", WRONG, "missing", f"pip install {name}=={locked.get(name, '')}")
        else:
            yield _against_lock(f"package {name}", found, locked.get(name))


def _engines(db: Database) -> Iterator[Finding]:
    wanted = session.setting(db, "backend") or session.default_backend()
    locked = _locked()
    for engine, names in ENGINES.items():
        found = next(((name, v) for name in names if (v := _version(name)) is not None), None)
        if found is not None:
            yield _against_lock(f"backend {engine}", found[1], locked.get(found[0]))
        elif engine == wanted:
            yield Finding(
                f"backend {engine}", WRONG, "missing, and it is the default",
                "Install it, or INSERT INTO cerebro.settings VALUES ('backend', 'jax').",
            )  # fmt: skip
        else:
            yield Finding(f"backend {engine}", OK, "not installed; only runs that ask for it need it")


def _programs(db: Database) -> Iterator[Finding]:
    """Check the folder of compiled programs in the same way as a session that starts JAX."""
    folder = find_folder(session.setting(db, session.CACHE_FOLDER))
    item = "compiled programs"
    if folder is None:
        yield Finding(item, OK, f"not kept for other sessions: the setting {session.CACHE_FOLDER} is empty")
        return
    try:
        check_folder(folder, makes=False)
    except NotTrusted as error:
        yield Finding(
            item, NOTE, f"not kept for other sessions: {error}",
            f"Each session compiles anew. Make it a folder that the server's user alone may write to, or name"
            f" another: INSERT INTO cerebro.settings VALUES ('{session.CACHE_FOLDER}', '/…').",
        )  # fmt: skip
        return
    if are_refused(folder):
        yield Finding(
            item, NOTE, f"in {shown(folder)}, of no use: JAX cannot load them on this processor",
            "Each session compiles anew.",
        )  # fmt: skip
        return
    yield Finding(item, OK, f"{used_bytes(folder) / 2**20:.1f} MB in {shown(folder)}")


def _against_lock(item: str, found: str, locked: str | None) -> Finding:
    if locked is None or found == locked:
        return Finding(item, OK, found)
    return Finding(
        item, NOTE, f"{found}, tested with {locked}",
        "It may well work; results agree bit for bit only among the same versions.",
    )  # fmt: skip


def _locked() -> dict[str, str]:
    """Return the package versions with which the tests were run, by name."""
    text = LOCK.read_text() if LOCK.exists() else ""
    return dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.M))


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _checks(db: Database) -> Iterator[Finding]:
    """Check that a Greenplum server has the views and functions that the checks of a session need."""
    lacks = db.server.lacks()
    if lacks is None:
        return
    name = ", ".join(f"{name} {version}" for name, version in session.server_versions(db).items())
    if lacks:
        yield Finding(
            "checks of sessions", WRONG, f"{name} lacks {', '.join(lacks)}",
            "All other functions are refused; docs/greenplum.md names the builds that are expected to work.",
        )  # fmt: skip
        return
    yield Finding("checks of sessions", OK, f"{name} has all that they read")


def _logins(db: Database) -> Iterator[Finding]:
    """Check that segment sessions can log in: if not, runs are slow, and none can run in the background."""
    try:
        topology = choose_local(db)
    except CerebroError as error:
        advice = " ".join(filter(None, [error.hint, "docs/operations.md has the lines of pg_hba.conf."]))
        yield Finding("segment sessions", WRONG, f"{error.message}. {error.detail or ''}".strip(), advice)
        return
    yield Finding("segment sessions", OK, "they can log in")
    refused = db.server.refused_logins(topology)
    if refused is not None:
        yield from _logins_of_segments(refused)


def _logins_of_segments(refused: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """Report the segment processes that cannot log in to their own server or to another segment's server."""
    own = [str(server) for server, segment in refused if server == segment]
    if own:
        found = f"not their own processes: {', '.join(own)}"
        yield Finding("servers of segments", WRONG, found, "docs/greenplum.md has the lines of pg_hba.conf.")
        return
    if refused:
        found = ", ".join(f"{server} not {segment}" for server, segment in refused)
        advice = "States take a slower way there; docs/greenplum.md has the lines of pg_hba.conf."
        yield Finding("servers of segments", NOTE, found, advice)
        return
    yield Finding("servers of segments", OK, "each lets the processes of all segments in")


def _room(db: Database) -> Finding:
    """Check that enough connections are free: a run takes one for each segment, one for the control session,
    and one for the background."""
    room = session.room(db, session.current_user(db))
    needed = session.usual_segments(db) + 2
    found = f"{room.free} of {room.most} free, a run needs {needed}"
    if room.free >= needed:
        return Finding("connections", OK, found)
    return Finding("connections", WRONG, found, "Raise max_connections, or lower the setting segments.")


def _machine(db: Database) -> Iterator[Finding]:
    segments = session.usual_segments(db)
    yield Finding("processors", OK, f"{cores()} for {segments} segments")
    yield _memory(segments)
    yield _disk(session.data_directory(db))
    yield _gpus(session.host_facts(db)["gpus"])


def _memory(segments: int) -> Finding:
    lines = dict(re.findall(r"^(\w+): +(\d+) kB", Path("/proc/meminfo").read_text(), re.M))
    total, free = int(lines["MemTotal"]) // 1024, int(lines["MemAvailable"]) // 1024
    needed = LEAST_MEMORY_MB * (segments + 1)
    found = f"{free} of {total} MB free"
    if free >= needed:
        return Finding("memory", OK, found)
    advice = f"{segments} segments need about {needed} MB besides their rows: lower the setting segments."
    return Finding("memory", NOTE, found, advice)


def _disk(folder: str) -> Finding:
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize // 2**20
    if free >= LEAST_DISK_MB:
        return Finding("disk", OK, f"{free} MB free")
    return Finding("disk", WRONG, f"{free} MB free", "Make room where the server keeps its data.")


def _gpus(found: Sequence[str]) -> Finding:
    if not found:
        return Finding("GPU", OK, "none; runs use the processors")
    names = ", ".join(found)
    if _version("tensorflow-cpu") is not None and _version("jax-cuda12-plugin") is None:
        advice = "These packages know processors alone: install tensorflow[and-cuda] or jax[cuda12]."
        return Finding("GPU", NOTE, names, advice)
    return Finding("GPU", OK, f"{names}; use_gpus => TRUE uses them")
