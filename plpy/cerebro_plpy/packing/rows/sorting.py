"""Sorts rows by their hashes in bounded memory: writes sorted blocks to a file and then merges them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from cerebro_plpy.errors import IO_ERROR, CerebroError

WRITE_BYTES = 4 << 20
BLOCK_BYTES = 1 << 20
SortedColumns = list[np.ndarray]
# Returns the values of the column with a number, for the rows at these places in sorted order.
Places = slice | np.ndarray
Pick = Callable[[Places, int], np.ndarray]


@dataclass
class _SortedRun:
    """A sorted block of rows in the file; `window` has the arrays of its part in memory, the hashes first."""

    starts: list[int]
    rows: int
    next_row: int = 0
    window: SortedColumns = field(default_factory=list)

    @property
    def more(self) -> bool:
        return self.next_row < self.rows


class Sorter:
    """A sorter that accepts rows in any order and returns them in the order of their hashes.

    Rows with equal hashes have equal content, so their order among each other does not matter.
    """

    def __init__(self, types: Sequence[tuple[str, int]], budget: int, least_rows: int) -> None:
        """Make a sorter for columns with these `types`, each an element type and a width.

        `budget` is the memory in bytes. There is always memory for `least_rows` rows, as the caller may ask
        `room()` for so many at a time.
        """
        self._types = [("<u8", 1), *types]
        self._row_bytes = sum(np.dtype(kind).itemsize * width for kind, width in self._types)
        self._budget = budget
        self._capacity = max(budget // 2 // self._row_bytes, least_rows)
        # Pages are touched only as rows come: a small table costs little.
        self._arrays = self._allocate()
        self._filled = 0
        self._file: IO[bytes] | None = None
        self._runs: list[_SortedRun] = []
        self.rows = 0

    def _allocate(self) -> SortedColumns:
        return [np.empty((self._capacity, width), kind) for kind, width in self._types]

    def room(self, rows: int) -> tuple[np.ndarray, SortedColumns]:
        """Return arrays for the next rows' hashes and columns; the caller fills them and calls `keep()`."""
        if self._filled + rows > self._capacity:
            self._spill()
        hashes, *columns = [array[self._filled : self._filled + rows] for array in self._arrays]
        return hashes[:, 0], columns

    def keep(self, rows: int) -> None:
        """Accept the next `rows` rows, which the caller has written into the arrays of `room()`."""
        self._filled += rows
        self.rows += rows

    def hashes(self) -> np.ndarray:
        """Return the hashes of all rows, sorted."""
        kind, width = self._types[0]
        parts = [self._arrays[0][: self._filled, 0]]
        parts += [self._read(run.starts[0], kind, width, 0, run.rows)[:, 0] for run in self._runs]
        return np.sort(np.concatenate(parts))

    def close(self) -> None:
        """Delete the temporary file, if there is one."""
        if self._file is not None:
            self._file.close()

    def picker(self) -> Pick | None:
        """Return a function that returns rows at any positions, or None if some rows were written to disk."""
        if self._runs:
            return None
        order = self._order()
        return lambda places, column: self._arrays[1 + column].take(order[places], axis=0)

    def blocks(self) -> Iterator[SortedColumns]:
        """Return an iterator over all rows in sorted order, in blocks of one array per column."""
        if not self._runs:
            return self._blocks_in_memory()
        self._spill()
        self._arrays = []
        return self._merged()

    def _order(self) -> np.ndarray:
        return np.argsort(self._arrays[0][: self._filled, 0])

    def _blocks_in_memory(self) -> Iterator[SortedColumns]:
        order = self._order()
        step = max(1, BLOCK_BYTES // self._row_bytes)
        for start in range(0, self._filled, step):
            rows = order[start : start + step]
            yield [column.take(rows, axis=0) for column in self._arrays[1:]]

    def _spill(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=_spill_directory())  # noqa: SIM115
            self._runs.append(self._write(self._file))
        except OSError as error:
            raise CerebroError(
                f"could not write rows to a temporary file: {error.strerror}",
                detail="A table larger than the memory budget is sorted on disk, in the data directory.",
                hint='Free disk space, or give options {"memory_mb": …} large enough for the whole table.',
                sqlstate=IO_ERROR,
            ) from error
        self._filled = 0

    def _write(self, file: IO[bytes]) -> _SortedRun:
        order = self._order()
        run = _SortedRun(starts=[], rows=self._filled)
        for array in self._arrays:
            run.starts.append(file.tell())
            step = max(1, WRITE_BYTES // (array.itemsize * array.shape[1]))
            for start in range(0, len(order), step):
                file.write(array.take(order[start : start + step], axis=0).data)
        file.flush()
        return run

    def _merged(self) -> Iterator[SortedColumns]:
        window_rows = max(1, self._budget // 8 // len(self._runs) // self._row_bytes)
        runs = list(self._runs)
        while runs:
            for run in runs:
                if not run.window:
                    self._load(run, window_rows)
            yield self._next_block(runs)
            runs = [run for run in runs if run.window or run.more]

    def _load(self, run: _SortedRun, rows: int) -> None:
        count = min(rows, run.rows - run.next_row)
        run.window = [
            self._read(start, kind, width, run.next_row, count)
            for start, (kind, width) in zip(run.starts, self._types, strict=True)
        ]
        run.next_row += count

    def _read(self, start: int, kind: str, width: int, row: int, count: int) -> np.ndarray:
        array = np.empty((count, width), kind)
        view = array.reshape(-1).view(np.uint8).data
        offset = start + row * width * array.itemsize
        done = 0
        while done < len(view):
            done += os.preadv(self._descriptor(), [view[done:]], offset + done)
        return array

    def _descriptor(self) -> int:
        if self._file is None:
            raise CerebroError("nothing was spilled", sqlstate="XX000")
        return self._file.fileno()

    @staticmethod
    def _next_block(runs: list[_SortedRun]) -> SortedColumns:
        """Return the next rows in sorted order, and remove them from the windows.

        They are the rows in memory that come before all rows still on disk.
        """
        limits = [run.window[0][-1, 0] for run in runs if run.more]
        parts = []
        for run in runs:
            count = len(run.window[0])
            if limits:
                count = int(np.searchsorted(run.window[0][:, 0], min(limits), side="right"))
            parts.append([array[:count] for array in run.window])
            run.window = [array[count:] for array in run.window] if count < len(run.window[0]) else []
        hashes, *columns = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        order = np.argsort(hashes[:, 0])
        return [column.take(order, axis=0) for column in columns]


def _spill_directory() -> str | None:
    """Return a directory on the server's own disk, or None if there is none: /tmp may be in memory.

    The paths are relative to the data directory, which is the current directory of a server process.
    """
    own = os.path.join("base", "pgsql_tmp")
    return (
        own if os.path.isdir(own) and os.access(own, os.W_OK) else ("base" if os.path.isdir("base") else None)
    )
