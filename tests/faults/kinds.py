"""The kinds of faults: how each strikes a server during a run, and what the disturbed call may do then."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg2

from fixtures import execute
from scratch import Server, as_server, kill_child, shell
from workload import FAST, FEATURES, GROUPS, SMALL, STRONG, Job

# What may become of the call that was disturbed: it goes on as if nothing had happened, it ends, or either.
UNDISTURBED, ENDED, EITHER = "undisturbed", "ended", "either"


@dataclass(frozen=True)
class Scene:
    """The server, the process of the caller's session and a source of random numbers, for one strike."""

    server: Server
    caller: int
    random: random.Random


@contextmanager
def untouched(server: Server) -> Iterator[None]:
    yield


@dataclass(frozen=True)
class Kind:
    """A kind of fault. `around` prepares the server before the run, and repairs it before the resume."""

    name: str
    strike: Callable[[Scene], None]
    expected: str = ENDED
    around: Callable[[Server], AbstractContextManager[None]] = untouched
    times_out: bool = False
    needs_mount: bool = False
    damages: bool = False
    rolls_back: bool = False
    job: Job = SMALL


def _sessions(scene: Scene, pattern: str) -> list[int]:
    rows = scene.server.sql(
        "SELECT pid FROM pg_stat_activity WHERE application_name ~ %s AND pid <> %s ORDER BY pid",
        f"^cerebro ({pattern})", scene.caller,
    )  # fmt: skip
    return [pid for (pid,) in rows]


def _worker(scene: Scene) -> int | None:
    """Return the process of a segment session, if possible of one at work, or None if there is none."""
    for pattern in ("visit|evaluate|merge", "start", "idle"):
        if found := _sessions(scene, pattern):
            return scene.random.choice(found)
    return None


def control_session(server: Server) -> int | None:
    """Return the process of the session that holds a run's advisory lock, or None."""
    rows = server.sql("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted")
    return rows[0][0] if rows else None


def _terminate(server: Server, pid: int | None) -> None:
    if pid is not None:
        server.sql("SELECT pg_terminate_backend(%s)", pid)


def segment_terminated(scene: Scene) -> None:
    _terminate(scene.server, _worker(scene))


def segment_killed(scene: Scene) -> None:
    kill_child(_worker(scene) or scene.caller)


def control_terminated(scene: Scene) -> None:
    _terminate(scene.server, control_session(scene.server))


def all_sessions_terminated(scene: Scene) -> None:
    for pid in _sessions(scene, "."):
        _terminate(scene.server, pid)


def caller_terminated(scene: Scene) -> None:
    _terminate(scene.server, scene.caller)


def caller_killed(scene: Scene) -> None:
    kill_child(scene.caller)


def caller_cancelled(scene: Scene) -> None:
    scene.server.sql("SELECT pg_cancel_backend(%s)", scene.caller)


def nothing(scene: Scene) -> None:
    """Do nothing: the fault of this kind is a setting of the caller, or follows after the strike."""


def stopped_at_once(scene: Scene) -> None:
    scene.server.stop("immediate")


def stopped_fast(scene: Scene) -> None:
    scene.server.stop("fast")


def all_killed(scene: Scene) -> None:
    scene.server.kill_all()


def any_killed(scene: Scene) -> None:
    scene.random.choice((segment_killed, caller_killed, all_killed))(scene)


def power_cut(scene: Scene) -> None:
    scene.server.cut_power()


def _limit(pid: int | None, limit: str) -> None:
    """Set a resource limit of a process, as the server's user: root may not do so on every machine."""
    try:
        if pid is not None:
            as_server("prlimit", f"--pid={pid}", limit)
    except RuntimeError:
        if Path(f"/proc/{pid}").exists():
            raise


def memory_taken(scene: Scene) -> None:
    """Let a segment session get no more memory from the operating system."""
    _limit(_worker(scene), "--as=1:1")


def log_unwritable(scene: Scene) -> None:
    """Make a segment session unable to write the write-ahead log, as on a full disk: the server panics."""
    _limit(_worker(scene), "--fsize=1:1")


def source_dropped(scene: Scene) -> None:
    """Try to drop, truncate and alter the packed table; each must time out on the lock of a running call."""
    for statement in ("DROP TABLE packed", "TRUNCATE packed", "ALTER TABLE packed ADD COLUMN more integer"):
        with closing(scene.server.connect()) as connection:
            execute(connection, "BEGIN; SET LOCAL lock_timeout = '200ms'")
            try:
                execute(connection, statement)
            except psycopg2.errors.LockNotAvailable:
                continue
            # The statement succeeded, so the call does not hold its lock yet, or its run is over.
            running = execute(connection, "SELECT run_id FROM cerebro.runs WHERE status = 'running'")
            assert not running, f"{statement} went through while a run used the table"
            execute(connection, "ROLLBACK")


def disk_filled(scene: Scene) -> None:
    """Fill the file system that holds the states."""
    ballast = scene.server.folder / "small" / "ballast"
    subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=64k"], check=False, capture_output=True)


STATES = ("TABLE cerebro._state", "INDEX cerebro._state_pkey")


@contextmanager
def small_disk(server: Server) -> Iterator[None]:
    """Move the table of states to a tablespace on a small file system; move it back at the end."""
    place = server.folder / "small"
    place.mkdir(exist_ok=True)
    shell('mount -t tmpfs -o size=6m none "$1" && mkdir "$1/space" && chown -R "$(server_user):" "$1"', place)
    # Dead rows of earlier rounds still take room.
    server.sql("VACUUM FULL cerebro._state")
    server.sql(f"CREATE TABLESPACE small LOCATION '{place}/space'")
    for what in STATES:
        server.sql(f"ALTER {what} SET TABLESPACE small")
    try:
        yield
    finally:
        (place / "ballast").unlink(missing_ok=True)
        for what in STATES:
            server.sql(f"ALTER {what} SET TABLESPACE pg_default")
        server.sql("DROP TABLESPACE small")
        shell('umount "$1"', place)


@contextmanager
def loose_commits(server: Server) -> Iterator[None]:
    """Let commits return before the server has written them to disk, so that a crash loses the last ones."""
    for setting in ("synchronous_commit = off", "wal_writer_delay = '10s'", "wal_writer_flush_after = 0"):
        server.sql(f"ALTER SYSTEM SET {setting}")
    server.sql("SELECT pg_reload_conf()")
    yield
    server.sql("ALTER SYSTEM RESET ALL")
    server.sql("SELECT pg_reload_conf()")


def damage(server: Server, run_id: int, chosen: random.Random) -> None:
    """Invert a random bit of the newest state of a random config of a run."""
    rows = server.sql(
        "SELECT DISTINCT ON (mst_key) mst_key, step, octet_length(data) FROM cerebro._state"
        " WHERE run_id = %s AND part = 0 ORDER BY mst_key, step DESC", run_id,
    )  # fmt: skip
    if rows:
        key, step, size = chosen.choice(rows)
        turn_bit(server.sql, run_id, key, step, chosen.randrange(8 * size))


def turn_bit(sql: Callable[..., object], run_id: int, mst_key: int, step: int, bit: int) -> None:
    sql(
        "UPDATE cerebro._state SET data = set_bit(data, %s, 1 - get_bit(data, %s))"
        " WHERE run_id = %s AND mst_key = %s AND step = %s AND part = 0",
        bit, bit, run_id, mst_key, step,
    )  # fmt: skip


EVERY = [
    Kind("a segment session is terminated", segment_terminated, UNDISTURBED),
    Kind("the control session is terminated", control_terminated, UNDISTURBED),
    Kind("all of its sessions are terminated", all_sessions_terminated, UNDISTURBED),
    Kind("a segment session is killed (kill -9)", segment_killed),
    Kind("the caller is terminated", caller_terminated),
    Kind("the caller is killed (kill -9)", caller_killed),
    Kind("the caller cancels", caller_cancelled),
    Kind("statement_timeout", nothing, EITHER, times_out=True),
    Kind("the caller's transaction is rolled back", nothing, UNDISTURBED, rolls_back=True),
    Kind("the server is stopped (fast)", stopped_fast),
    Kind("the server is stopped (immediate)", stopped_at_once),
    Kind("every process is killed (kill -9)", all_killed),
    Kind(
        "every process is killed, the last commits are lost (synchronous_commit = off)",
        all_killed,
        around=loose_commits,
    ),
    Kind("power is cut: only what had reached the disk is left", power_cut, needs_mount=True),
    Kind("the disk of the states is full", disk_filled, around=small_disk, needs_mount=True),
    Kind("the write-ahead log cannot be written", log_unwritable, EITHER),
    Kind("the memory of a segment session runs out", memory_taken, EITHER),
    Kind("a state is damaged before the resuming", caller_cancelled, damages=True),
    Kind("the packed table is to be dropped, truncated, altered", source_dropped, UNDISTURBED),
    *(
        Kind(f"some process is killed (kill -9): {job.name}", any_killed, job=job)
        for job in (FAST, FEATURES, GROUPS, STRONG)
    ),
]
