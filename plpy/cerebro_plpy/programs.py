"""Keeps compiled programs in a folder of the server, for later sessions.

A program that is loaded runs as code of the server. So the folder is used only if no one but the operating
system's user of the server can write there. Each processor and each build of the compiler has a subfolder.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.metadata
import os
import platform
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# In the data directory, unless an administrator names another folder.
FOLDER = "cerebro_cache"
OFF = ""
_MOST_BYTES = 512 << 20
_MOST_DAYS = 90
_DAY = 86400
# A file that is unfinished for longer was left by a process that was killed.
_UNFINISHED_SECONDS = 3600
_UNFINISHED = ".unfinished"
# The beginning of a notice; the reason follows.
NOT_KEPT = "compiled programs are not kept for other sessions"
_KIND_LETTERS = 32
_DIGEST_BYTES = hashlib.sha256().digest_size
# The name of an entry beside the programs, which says whether they can be loaded on this processor at all.
TRIED = "loads"
LOADS, REFUSES = b"yes", b"no"


class NotTrusted(Exception):
    """Raised if a folder must not hold compiled programs; the text says why."""


def find_folder(named: str | None) -> Path | None:
    """Return the folder for programs: `named` by an administrator, or the default if None.

    Return None if `named` is an empty text, or if this is no process of a server.
    """
    if named is not None:
        return Path(named) if named != OFF else None
    data = _data_directory()
    return None if data is None else data / FOLDER


def _data_directory() -> Path | None:
    """Return the server's data directory, or None if this is no process of a server."""
    with contextlib.suppress(ValueError):
        value = ctypes.c_char_p.in_dll(ctypes.PyDLL(None), "DataDir").value
        return None if value is None else Path(os.fsdecode(value))
    return None


def check_folder(folder: Path, *, makes: bool = True) -> None:
    """Make the folder if it is missing; raise NotTrusted unless only the server's user can write there.

    If not `makes`, do not make a missing folder, and check only the folders above it.
    """
    if not folder.is_absolute():
        raise NotTrusted(f"{folder} is not an absolute path")
    try:
        if makes and not os.path.lexists(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        if os.path.lexists(folder):
            _check_own(folder, folder.lstat())
        _check_way(folder)
    except OSError as error:
        raise NotTrusted(f"{shown(folder)}: {error.strerror}") from None


def shown(folder: Path) -> str:
    """Return a folder's name for messages, without the path of the server's data directory."""
    data = _data_directory()
    if data is not None and folder.is_relative_to(data):
        return str(folder.relative_to(data))
    return str(folder)


def _check_own(folder: Path, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise NotTrusted(f"{shown(folder)} is a link or a file, not a folder")
    if found.st_uid != os.geteuid():
        number = found.st_uid
        raise NotTrusted(f"{shown(folder)} belongs to the user with number {number}, not to the server's")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotTrusted(f"others than its owner may write to {shown(folder)}")


def _check_way(folder: Path) -> None:
    """Raise NotTrusted if another user of the system could replace the folder or one that it lies in."""
    data = _data_directory()
    for above in folder.resolve().parents:
        if data is not None and above == data.resolve():
            # A user who can replace the data directory controls the server already.
            return
        found = above.stat()
        if found.st_uid not in (0, os.geteuid()):
            raise NotTrusted(f"{above} belongs to the user with number {found.st_uid}, not to the server's")
        # In a sticky folder such as /tmp, users cannot rename the folders of others.
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
            raise NotTrusted(f"others than its owner may write to {above}")


def name_kind(distribution: str, threads: int) -> str:
    """Return the name of the subfolder for this session's programs: a digest of what they depend on.

    These are the files of the compiler (`distribution`), the processor and the number of threads. A program
    fits only a session with the same digest.
    """
    found = hashlib.sha256()
    # RECORD has a digest of each file of the distribution.
    try:
        record = importlib.metadata.distribution(distribution).read_text("RECORD")
    except importlib.metadata.PackageNotFoundError:
        record = None
    if not record:
        raise NotTrusted(f"{distribution} has no list of its files, so its builds cannot be told apart")
    for part in (record, platform.machine(), _processor(), str(threads)):
        found.update(part.encode() + b"\0")
    return found.hexdigest()[:_KIND_LETTERS]


def _processor() -> str:
    """Return the lines of /proc/cpuinfo that identify the model and features of the first processor."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0]
    except OSError:
        return platform.processor()
    kept = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
    return "\n".join(line for line in first.splitlines() if line.startswith(kept))


class Programs:
    """The compiled programs of one kind (`name_kind`), one file each, which begins with a digest of the
    rest."""

    def __init__(self, folder: Path, kind: str) -> None:
        """Make the subfolder of a kind; raise NotTrusted or OSError if this is impossible."""
        check_folder(folder)
        # A link on the way could lead elsewhere later.
        self._all = folder.resolve()
        self._folder = self._all / kind
        check_folder(self._folder)
        self._room = _MOST_BYTES // 8
        self._clean()

    @property
    def path(self) -> Path:
        return self._folder

    def get(self, name: str) -> bytes | None:
        """Return the program that is kept under a name, or None; remove a damaged file."""
        file = self._folder / name
        try:
            held = file.read_bytes()
            digest, value = held[:_DIGEST_BYTES], held[_DIGEST_BYTES:]
            if hashlib.sha256(value).digest() == digest:
                os.utime(file)
                return value
            file.unlink()
        except OSError:
            pass
        return None

    def put(self, name: str, value: bytes) -> None:
        """Keep a program under a name, as a whole file or not at all; ignore an error such as a full disk."""
        self._room -= len(value)
        if self._room < 0:
            self._room = _MOST_BYTES // 8
            self._clean()
        with contextlib.suppress(OSError):
            handle, unfinished = tempfile.mkstemp(_UNFINISHED, dir=self._folder)
            try:
                with open(handle, "wb") as file:
                    file.write(hashlib.sha256(value).digest() + value)
                os.replace(unfinished, self._folder / name)
            except OSError:
                os.unlink(unfinished)

    def _clean(self) -> None:
        """Remove programs that were not used for `_MOST_DAYS`, and the least recent beyond `_MOST_BYTES`."""
        now = time.time()
        left = _MOST_BYTES
        for used, size, file in sorted(_files(self._all), reverse=True):
            old = now - used > _MOST_DAYS * _DAY
            if file.suffix == _UNFINISHED:
                old = now - used > _UNFINISHED_SECONDS
            left -= size
            if old or left < 0:
                with contextlib.suppress(OSError):
                    file.unlink()


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield the time of last use, the size and the path of each program in all subfolders.

    Other files are left out, because the folder that an administrator has named may have some.
    """
    for file in folder.glob(f"{'[0-9a-f]' * _KIND_LETTERS}/*"):
        # Another session may clean at the same time.
        with contextlib.suppress(OSError):
            found = file.lstat()
            yield found.st_mtime, found.st_size, file


def are_refused(folder: Path) -> bool:
    """Return whether the newest trial has found that this processor cannot load the programs in a folder."""
    tried = [(used, file) for used, _, file in _files(folder) if file.name == TRIED]
    with contextlib.suppress(OSError):
        return bool(tried) and max(tried)[1].read_bytes()[_DIGEST_BYTES:] == REFUSES
    return False


def used_bytes(folder: Path) -> int:
    return sum(size for _, size, _ in _files(folder))
