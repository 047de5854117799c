"""Rows that the caller's session hands to the sessions that train for it, in a file that has no name.

Other sessions do not see a table before the transaction that made it is committed. So the caller's session
copies the tables' buffers into a file, whose name is removed as soon as the file is open. Processes of the
same user of the operating system open the file by its number in the caller's process; the file is gone when
that process ends.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

from cerebro_plpy import memory
from cerebro_plpy.database import Row
from cerebro_plpy.errors import DISK_FULL, CerebroError

# Where the server keeps temporary files, from its data directory.
_FOLDER = os.path.join("base", "pgsql_tmp")
_PROCESSES = "/proc"
# At the beginning of the file: a secret, and where its index begins and how long it is.
_HEAD = struct.Struct("16sQQ")


@dataclass(frozen=True)
class HandedPlace:
    """The place of the file: the process that has it open (`pid`) and the file's number there (`descriptor`).

    The file begins with `secret`, by which another process knows that it has opened the right file.
    """

    pid: int
    descriptor: int
    secret: str


def can_hand() -> bool:
    """Return whether this system lets a process open another one's files by their numbers, through /proc."""
    return os.path.exists(os.path.join(_PROCESSES, "self", "fd"))


class HandedFile:
    """A file that is being filled with buffers, and the index that says where in the file each field is."""

    def __init__(self) -> None:
        os.makedirs(_FOLDER, mode=0o700, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=_FOLDER)  # noqa: SIM115 - it is open until the run ends
        self._secret = secrets.token_bytes(16)
        self._index: dict[str, Any] = {}
        self._file.seek(_HEAD.size)

    def add_partition(self, table: str, facts: Mapping[str, Any], buffers: Sequence[Any]) -> None:
        """Add a partition of `table` to the index, with `facts` about the partition; `buffers` has what
        `write_row` returned for each of its buffers."""
        self._index.setdefault(table, []).append({**facts, "buffers": buffers})

    def write_row(self, row: Row) -> dict[str, Any]:
        """Write a buffer's fields of bytes to the file; return all its fields, with the bytes replaced by
        their places in the file."""
        return {
            name: self._write(value) if isinstance(value, bytes) else value for name, value in row.items()
        }

    def _write(self, value: bytes) -> dict[str, int]:
        first = self._file.tell()
        self._file.write(value)
        return {"first": first, "bytes": len(value)}

    def finish(self) -> HandedPlace:
        """Write the index, and return where other processes find the file."""
        first, index = self._file.tell(), json.dumps(self._index).encode()
        self._write(index)
        self._file.seek(0)
        self._file.write(_HEAD.pack(self._secret, first, len(index)))
        self._file.flush()
        return HandedPlace(os.getpid(), self._file.fileno(), self._secret.hex())

    def close(self) -> None:
        self._file.close()


class HandedFiles(dict[int, HandedFile]):
    """The files that this session keeps open for its runs, by the runs' numbers."""


@contextmanager
def refusing_full_disk() -> Iterator[None]:
    """During the block, turn the error for a full disk into an error for the caller. The file must be flushed
    within the block, since a full disk may be noticed only then."""
    try:
        yield
    except OSError as error:
        raise CerebroError(
            f"the rows cannot be handed to the sessions that train: {error.strerror}",
            hint="Make room in the data directory, or commit the packed tables before the call.",
            sqlstate=DISK_FULL,
        ) from None


def close_handed(run_id: int) -> None:
    """Close the file with the rows of a run that is over, if this session has such a file."""
    found = memory.get_instance(HandedFiles).pop(run_id, None)
    if found is not None:
        # What a full disk has not taken is lost anyhow.
        with suppress(OSError):
            found.close()


@dataclass(frozen=True)
class HandedRows:
    """The rows that another session has handed over, in a file that is mapped into memory, not read."""

    index: Mapping[str, Sequence[Mapping[str, Any]]]
    content: memoryview

    @classmethod
    def open(cls, place: HandedPlace) -> Self | None:
        """Return the rows in the file at this place; None if the session that made the file is gone."""
        path = os.path.join(_PROCESSES, str(place.pid), "fd", str(place.descriptor))
        try:
            with open(path, "rb") as file:
                content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError):
            return None
        if len(content) < _HEAD.size:
            return None
        secret, first, size = _HEAD.unpack(content[: _HEAD.size])
        if not secrets.compare_digest(secret, bytes.fromhex(place.secret)):
            return None
        return cls(json.loads(bytes(content[first : first + size])), content)

    def read_row(self, fields: Mapping[str, Any]) -> Row:
        """Return the fields of a buffer; the fields of bytes are views of the file."""
        return {
            name: self.content[value["first"] : value["first"] + value["bytes"]]
            if isinstance(value, Mapping)
            else value
            for name, value in fields.items()
        }
