"""A folder of compiled programs has only complete files, and is refused if other users can write to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cerebro_plpy import programs
from cerebro_plpy.programs import (
    NotTrusted,
    Programs,
    are_refused,
    check_folder,
    find_folder,
    name_kind,
)

PLPY = Path(programs.__file__).parents[1]
FOREVER = """
import os, sys
from pathlib import Path
from cerebro_plpy.programs import Programs
kept = Programs(Path(sys.argv[1]), "a" * 32)
print("go", flush=True)
number = 0
while True:
    number += 1
    kept.put(f"program-{number % 5}", os.urandom(1) * 3_000_000)
"""
FULL = """
import resource, sys
from pathlib import Path
from cerebro_plpy.programs import Programs
kept = Programs(Path(sys.argv[1]), "a" * 32)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
kept.put("large", bytes(100_000))
kept.put("small", b"fits")
"""
NO_ROOM = """
import resource, sys
from pathlib import Path
from cerebro_plpy.engine.backends.jax_programs import keep_programs
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
print(keep_programs(Path(sys.argv[1]), 1))
"""
REFUSING = """
import sys
from pathlib import Path
from cerebro_plpy.engine.backends import jax_programs
kept = jax_programs._Cache.get
def refuse(cache, key):
    value = kept(cache, key)
    return value and b"no program" + value
jax_programs._Cache.get = refuse
print(jax_programs.keep_programs(Path(sys.argv[1]), 1))
"""
COMPILE = """
import sys
from pathlib import Path
import jax, jax.numpy as jnp
from cerebro_plpy.engine.backends.jax_programs import keep_programs
print(keep_programs(Path(sys.argv[1]), 1))
numbers = jnp.linspace(-3, 3, 6_400).reshape(80, 80)
result = jax.jit(lambda x: jnp.exp(jnp.sin(x) @ jnp.cos(x)) / x.sum())(numbers)
print(bytes(result.tobytes()).hex()[:4000])
"""


def run(script: str, folder: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), folder],
        env={**os.environ, "PYTHONPATH": str(PLPY), "JAX_PLATFORMS": "cpu"},
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "programs"


def test_what_is_kept_comes_back(folder: Path) -> None:
    kept = Programs(folder, "a" * 32)
    kept.put("a", b"first")
    kept.put("a", b"second")
    assert kept.get("a") == b"second"
    assert kept.get("b") is None
    assert Programs(folder, "b" * 32).get("a") is None
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_server_decides_where(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_folder(None) is None, "this is no process of a server"
    assert find_folder("") is None
    assert find_folder("/var/cache/x") == Path("/var/cache/x")


@pytest.mark.parametrize("length", [0, 10, 31, 35])
def test_a_damaged_program_is_compiled_again(folder: Path, length: int) -> None:
    kept = Programs(folder, "a" * 32)
    kept.put("a", b"a program")
    file = kept.path / "a"
    file.write_bytes(file.read_bytes()[:length])
    assert kept.get("a") is None
    assert not file.exists()


def test_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotTrusted, match=r"programs is a link or a file, not a folder"):
        check_folder(folder)


def test_a_link_on_the_way_is_followed_once(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir(mode=0o700)
    way = tmp_path / "way"
    way.symlink_to(tmp_path / "ours")
    kept = Programs(way / "programs", "a" * 32)
    kept.put("a", b"ours")
    way.unlink()
    way.symlink_to(tmp_path / "theirs")
    Programs(way / "programs", "a" * 32).put("a", b"theirs")
    assert kept.get("a") == b"ours"


def test_a_full_disk_is_no_reason_for_good(folder: Path) -> None:
    assert run(NO_ROOM, folder).startswith("compiled programs cannot be written to")
    assert run(COMPILE, folder).startswith("None\n")


def test_a_file(folder: Path) -> None:
    folder.touch()
    with pytest.raises(NotTrusted, match="programs is a link or a file, not a folder"):
        check_folder(folder)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_for_others(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(NotTrusted, match="others than its owner may write to .*programs"):
        check_folder(folder)


def test_a_folder_within_one_for_others(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(NotTrusted, match="others than its owner may write to .*open$"):
        check_folder(tmp_path / "open" / "programs")
    (tmp_path / "open").chmod(0o1777)
    check_folder(tmp_path / "open" / "programs")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_of_somebody_else(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)
    with pytest.raises(NotTrusted, match="belongs to the user with number 12345, not to the server's"):
        check_folder(folder)


def test_places_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(NotTrusted, match="some/where is not an absolute path"):
        check_folder(Path("some/where"))
    with pytest.raises(NotTrusted, match="No such file or directory"):
        check_folder(tmp_path / "missing" / "programs")


def test_the_folder_has_a_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_MOST_BYTES", 10_000)
    kept = Programs(folder, "a" * 32)
    for number in range(30):
        kept.put(str(number), bytes(1000))
        used = time.time() + number - 60
        os.utime(kept.path / str(number), (used, used))
    Programs(folder, "b" * 32)
    assert {file.name for file in kept.path.iterdir()} == {str(number) for number in range(21, 30)}


def test_what_is_not_ours_stays(folder: Path) -> None:
    for name in ("base/16384", "pg_wal"):
        (folder / name).mkdir(parents=True)
        (folder / name / "2619").write_bytes(b"rows")
        os.utime(folder / name / "2619", (0, 0))
    folder.chmod(0o700)
    Programs(folder, "a" * 32)
    assert sorted(file.name for file in folder.rglob("*") if file.is_file()) == ["2619", "2619"]


def test_what_nobody_uses_goes(folder: Path) -> None:
    kept = Programs(folder, "a" * 32)
    for name, days in (("young", 80), ("old", 100), ("left.unfinished", 1)):
        kept.put(name, b"x")
        used = time.time() - days * 86400
        os.utime(kept.path / name, (used, used))
    Programs(folder, "a" * 32)
    assert [file.name for file in kept.path.iterdir()] == ["young"]


def test_killed_while_it_writes(folder: Path) -> None:
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", FOREVER, folder],
            env={**os.environ, "PYTHONPATH": str(PLPY)},
            stdout=subprocess.PIPE,
        )
        with writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.2)
            writer.send_signal(signal.SIGKILL)
        files = [file for file in (folder / ("a" * 32)).iterdir() if file.suffix != ".unfinished"]
        assert files
        for file in files:
            assert len(set(Programs(folder, "a" * 32).get(file.name) or b"")) == 1, "whole, of one writing"


def test_a_full_disk(folder: Path) -> None:
    run(FULL, folder)
    kept = Programs(folder, "a" * 32)
    assert kept.get("large") is None
    assert kept.get("small") == b"fits"
    assert [file.name for file in kept.path.iterdir()] == ["small"]


def test_jax_loads_what_it_compiled(folder: Path) -> None:
    """One process compiles and stores programs, a second loads them, a third replaces damaged ones."""
    first = run(COMPILE, folder)
    assert first.startswith("None\n"), "there is nothing against it"
    (kind,) = folder.iterdir()
    written = {file.name: file.read_bytes() for file in kind.iterdir()}
    assert run(COMPILE, folder) == first
    assert {file.name: file.read_bytes() for file in kind.iterdir()} == written, "nothing was compiled"
    for file in kind.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert run(COMPILE, folder) == first
    assert written.keys() == {file.name for file in kind.iterdir()}


def test_two_sessions_compile_the_same_at_once(folder: Path) -> None:
    with ThreadPoolExecutor(2) as sessions:
        first, second = sessions.map(run, [COMPILE] * 2, [folder] * 2)
    assert first == second and first.startswith("None\n")
    (kind,) = folder.iterdir()
    written = {file.name: file.read_bytes() for file in kind.iterdir()}
    assert not any(name.endswith(".unfinished") for name in written)
    assert run(COMPILE, folder) == first
    assert {file.name: file.read_bytes() for file in kind.iterdir()} == written, "nothing was compiled"


def test_a_processor_that_loads_nothing(folder: Path) -> None:
    run(COMPILE, folder)
    (kind,) = folder.iterdir()
    Programs(folder, kind.name).put("loads", b"no")
    before = sorted(kind.iterdir())
    assert run(COMPILE, folder).startswith("JAX cannot load what it has compiled on this processor\n")
    assert sorted(kind.iterdir()) == before
    assert are_refused(folder)


def test_a_processor_that_refuses_is_noticed(folder: Path) -> None:
    """The first session compiles a small program, and cannot load it again."""
    said = "JAX cannot load what it has compiled on this processor\n"
    assert run(REFUSING, folder) == said
    assert run(COMPILE, folder).startswith(said), "no later session tries again"


def test_each_build_processor_and_number_of_threads_has_programs_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of another build or processor could crash the session that loads it."""
    about = tmp_path / "compiler-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: compiler\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NotTrusted, match="compiler has no list of its files"):
        name_kind("compiler", 1)
    (about / "RECORD").write_text("compiler.so,sha256=first,100\n")
    first = name_kind("compiler", 1)
    assert name_kind("compiler", 1) == first != name_kind("compiler", 2)
    (about / "RECORD").write_text("compiler.so,sha256=second,100\n")
    second = name_kind("compiler", 1)
    monkeypatch.setattr(programs, "_processor", lambda: "flags: another")
    assert len({first, second, name_kind("compiler", 1)}) == 3


def test_a_processor_is_known_by_its_features() -> None:
    """A machine's clone on another processor must not load programs with instructions that it lacks."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    features = next(line for line in lines if line.startswith(("flags", "Features")))
    assert features in programs._processor().splitlines()
