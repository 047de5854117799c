"""Loads a partition into the memory of a segment's process, buffer by buffer."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence

import numpy as np

from cerebro_plpy.cluster.protocol import ExpectBuffers
from cerebro_plpy.engine.models.data import Dataset, Target, room
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.packing.rows import read
from cerebro_plpy.segment.rows import DTYPES
from cerebro_plpy.store.packed import partitions


class Load:
    """A partition that is being loaded. Its arrays are allocated when the first buffer shows their shapes."""

    def __init__(self, asked: ExpectBuffers) -> None:
        self.place = (asked.role, asked.table, asked.segment)
        self.version = tuple(asked.version)
        self._kinds, self._in_memory = asked.kinds, asked.in_memory
        self._places: dict[int, tuple[int, int]] = {}
        self._missing: set[int] = set()
        self._arrays: list[np.ndarray] = []
        self._rows = 0
        for buffer in (partitions.Buffer(*b) for b in asked.buffers):
            self._places[buffer.buffer_id] = self._rows, buffer.rows
            self._missing.add(buffer.buffer_id)
            self._rows += buffer.rows

    def take(self, buffer_id: int, shapes: Sequence[Sequence[int]], fields: Sequence[bytes]) -> None:
        buffers = [
            read.decode_buffer(data, shape, DTYPES[kind] if kind else read.FEATURES)
            for data, shape, kind in zip(fields, shapes, self._kinds, strict=True)
        ]
        if not self._arrays:
            self._arrays = [self._room(buffer) for buffer in buffers]
        start, rows = self._places.get(buffer_id, (0, -1))
        if any(len(buffer) != rows for buffer in buffers) or buffer_id not in self._missing:
            raise self._changed()
        for array, buffer in zip(self._arrays, buffers, strict=True):
            array[start : start + rows] = buffer
        self._missing.discard(buffer_id)

    def _room(self, like: np.ndarray) -> np.ndarray:
        shape = (self._rows, *like.shape[1:])
        if self._in_memory:
            return room(shape, like.dtype)
        # The working directory is the segment's data directory.
        own = os.path.join("base", "pgsql_tmp")
        with tempfile.TemporaryFile(dir=own if os.path.isdir(own) else "base") as file:
            file.truncate(max(1, math.prod(shape) * like.dtype.itemsize))
            return np.memmap(file, like.dtype, "r+", shape=shape)

    def check(self) -> None:
        if self._missing:
            raise self._changed()

    def _changed(self) -> CerebroError:
        return CerebroError(
            f"table {self.place[1]} has changed while it was read",
            detail="Or its rows do not lie where its distribution keys say.",
            hint="Start a new run; leave its tables alone until it ends.",
            sqlstate=WRONG_STATE,
        )

    def dataset(self) -> Dataset:
        inputs = [a for a, kind in zip(self._arrays, self._kinds, strict=True) if kind is None]
        targets = [Target(a, kind) for a, kind in zip(self._arrays, self._kinds, strict=True) if kind]
        return Dataset(inputs, targets)
