"""A private server that the fault harness may kill, starve and cut off, without harm to any other server.

If this process is root and can mount loop devices, the server's files are in a file system inside one file. A
copy of that file is what a power loss would leave of the server's files.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg2

from fixtures import Connection, Rows, execute

ROOT = Path(__file__).resolve().parents[2]
PORT = 5432
PATIENCE = 60.0
DISK_MB = 1024
_REFUSED = re.compile("FATAL:  the database system is|DETAIL:  Consistent recovery")
# They are options on the command line: a configuration file that is not synced would be lost in a power cut.
SETTINGS = {
    "listen_addresses": "",
    "port": PORT,
    "max_connections": 60,
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "log_line_prefix": "%m [%p] %q%u@%d %a: ",
}


def shell(line: str, *arguments: object) -> str:
    """Run a line of bash that can use the functions of tools/common.sh, and return its output, stripped."""
    command = ["bash", "-c", f". {ROOT}/tools/common.sh; {line}", "_", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{line} {arguments}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def as_server(*arguments: object) -> None:
    shell('as_server "$@" </dev/null >/dev/null', *arguments)


class Disk:
    """A file system inside a file, mounted for the server's data."""

    def __init__(self, image: Path, place: Path) -> None:
        self.image = image
        self.place = place

    def make(self) -> None:
        with self.image.open("wb") as file:
            file.truncate(DISK_MB * 2**20)
        shell('mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$1"', self.image)
        self.mount()

    def mount(self) -> None:
        shell('mount -o loop "$1" "$2"', self.image, self.place)

    def unmount(self) -> None:
        # A process that was killed has its files open until the last of its threads is gone.
        shell(
            'for n in {1..100}; do umount "$1" 2>/dev/null && exit; sleep 0.1; done; umount "$1"', self.place
        )

    def copy(self) -> Path:
        """Copy the disk's file, repeatedly until it did not change meanwhile; return the path of the copy."""
        copied = self.image.with_suffix(".copy")
        for _ in range(20):
            shell('cp --sparse=always "$1" "$2"', self.image, copied)
            if not subprocess.run(["cmp", "-s", self.image, copied], check=False).returncode:
                return copied
        raise RuntimeError("the disk never was at rest")

    def put_back(self, copied: Path) -> None:
        self.unmount()
        copied.replace(self.image)
        self.mount()


def may_mount() -> bool:
    """Return whether this process can mount loop devices."""
    if os.geteuid():
        return False
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder) / "image", Path(folder) / "place")
        disk.place.mkdir()
        try:
            with disk.image.open("wb") as file:
                file.truncate(2**22)
            shell('mkfs.ext4 -q "$1"', disk.image)
            disk.mount()
            disk.unmount()
        except RuntimeError:
            return False
    return True


class Server:
    """A private server, whose data, log and socket are in one folder."""

    def __init__(self, folder: Path, disk: Disk | None, programs: Path | None = None) -> None:
        self.folder = folder
        self.disk = disk
        self.data = folder / "disk" / "data"
        self.log = folder / "log"
        self.cache = folder / "cache"
        self.bin = programs or Path(shell("own_pg_config")).parent

    def make(self) -> None:
        self.init()
        self.start()
        self.sql("CREATE EXTENSION cerebro CASCADE")

    def init(self) -> None:
        if self.disk is not None:
            self.disk.make()
        shell('chown -R "$(server_user):" "$1" && chmod 700 "$1"', self.folder)
        as_server(
            self.bin / "initdb", "-D", self.data, "--username=postgres", "--auth=trust", "--locale=C.UTF-8"
        )

    def start(self) -> None:
        # JAX keeps its compiled programs in this folder, which saves most of a round's time.
        cache = [
            "env",
            f"JAX_COMPILATION_CACHE_DIR={self.cache}",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0",
        ]
        settings = SETTINGS | {"unix_socket_directories": self.folder}
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        self._control("start", "-l", self.log, "-o", options, before=cache)

    def stop(self, mode: str) -> None:
        self._control("stop", "-m", mode)

    def _control(self, *arguments: object, before: Sequence[str] = ()) -> None:
        as_server(*before, self.bin / "pg_ctl", "-D", self.data, "-s", "-w", "-t", int(PATIENCE), *arguments)

    def ensure_up(self) -> None:
        """Wait until the server accepts a connection; start the server if none of its processes is left."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                self.connect().close()
                return
            except psycopg2.OperationalError:
                if not self.pids():
                    # A killed postmaster that no parent reaps keeps its number, and these files name it.
                    for lock in (self.data / "postmaster.pid", self.folder / f".s.PGSQL.{PORT}.lock"):
                        lock.unlink(missing_ok=True)
                    self.start()
                time.sleep(0.05)
        raise RuntimeError("the server does not come back")

    def pids(self) -> list[int]:
        """Return the process numbers of the postmaster and its children, or none if it is not running."""
        try:
            postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
        except (FileNotFoundError, IndexError):
            return []
        if "postgres" not in _command(postmaster):
            return []
        children = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [postmaster, *(pid for pid in children if _parent(pid) == postmaster)]

    def kill_all(self) -> None:
        """Kill all processes; the postmaster is stopped first, so that it neither cleans up nor forks."""
        for pid in self.pids()[:1]:
            kill(pid, signal.SIGSTOP)
        pids = self.pids()
        for pid in pids:
            kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(_alive(pid) for pid in pids), "killed processes to be gone")

    def kill_postmaster(self) -> None:
        """Kill the postmaster alone; the other processes must end by themselves within 20 seconds."""
        pids = self.pids()
        kill(pids[0], signal.SIGKILL)
        wait_until(lambda: not any(_alive(pid) for pid in pids), "the others to end", patience=20)

    def cut_power(self) -> None:
        """Kill the server, and keep only what had reached its disk when its processes were stopped."""
        if self.disk is None:
            raise RuntimeError("this server has no disk of its own")
        for _ in range(2):
            # The second round stops processes that were forked during the first.
            for pid in self.pids():
                kill(pid, signal.SIGSTOP)
        copied = self.disk.copy()
        self.kill_all()
        self.disk.put_back(copied)

    def connect(self, user: str = "postgres", dbname: str = "postgres") -> Connection:
        connection = psycopg2.connect(host=str(self.folder), port=PORT, dbname=dbname, user=user)
        connection.autocommit = True
        connection.notices = []
        return connection

    def sql(self, query: str, *values: object) -> Rows:
        """Run one statement on a new connection, and return its rows."""
        connection = self.connect()
        try:
            return execute(connection, query, *values)
        finally:
            connection.close()

    def remove(self) -> None:
        with suppress(RuntimeError):
            self.stop("immediate")
        if self.disk is not None:
            self.disk.unmount()
        shutil.rmtree(self.folder, ignore_errors=True)


def kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_child(pid: int) -> None:
    """Kill a child of a postmaster, and wait until it is reaped; its client may notice the end earlier."""
    kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), f"process {pid} to be reaped")


def wait_until(true: Any, what: str, patience: float = PATIENCE, pause: float = 0.02) -> None:
    deadline = time.monotonic() + patience
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience} s for {what}")
        time.sleep(pause)


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def _alive(pid: int) -> bool:
    """Return whether any thread of a process lives; threads keep files open after the first has ended."""
    with suppress(OSError):
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return any((task / "stat").read_text().rpartition(")")[2].split()[0] != "Z" for task in tasks)
    return False


def _parent(pid: int) -> int | None:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def end_in_order() -> None:
    """Exit by an exception on SIGTERM, so that context managers remove this program's server first."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


@contextmanager
def server(empty: bool = False, programs: Path | None = None) -> Iterator[Server]:
    """Yield a new server that is started and has the extension, and remove it at the end.

    Its PostgreSQL version is that of the executables in the folder `programs`, by default the tested one. An
    `empty` server is only initialized: it is not started, and has no extension.
    """
    folder = Path(tempfile.mkdtemp(prefix="cerebro-faults-"))
    for name in ("disk", "cache"):
        (folder / name).mkdir()
    disk = Disk(folder.with_suffix(".image"), folder / "disk") if may_mount() else None
    made = Server(folder, disk, programs)
    try:
        made.init() if empty else made.make()
        yield made
    except BaseException as error:
        if made.log.exists():
            told = [line for line in made.log.read_text().splitlines() if not _REFUSED.search(line)]
            error.add_note("\n".join(["The server's log ends:", *told[-100:]]))
        raise
    finally:
        made.remove()
        if disk is not None:
            for file in (disk.image, disk.image.with_suffix(".copy")):
                file.unlink(missing_ok=True)
