"""A segment's partition in memory: decoded once, kept for the next visit and the next run.

A partition within the memory budget is one contiguous dataset. A larger one is read again buffer by
buffer; the order of rows is the same either way: the buffers are shuffled, and the rows inside each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from cerebro_plpy import seeding
from cerebro_plpy.database import Database, Row
from cerebro_plpy.engine.data import ONE_HOT, VALUE, Block, Dataset, Target, concatenate
from cerebro_plpy.errors import LOCK_NOT_AVAILABLE, WRONG_STATE, CerebroError
from cerebro_plpy.packing import read
from cerebro_plpy.store import packed, partitions, runs
from cerebro_plpy.store.names import parse_table


@dataclass
class Partition:
    """The rows of one packed table on one segment, as a role may read them."""

    table: str
    key: int
    version: object
    buffers: list[partitions.Buffer]
    look: Callable[[], tuple[object, list[partitions.Buffer]]]
    digest: Callable[[], str]
    load: Callable[[int], Dataset]
    cached: Dataset | None = None
    run_id: int | None = None
    starts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.starts = np.concatenate([[0], np.cumsum([b.rows for b in self.buffers])]).astype(np.int64)

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    def shuffled(self, seed: int, epoch: int, number: int) -> Iterator[Block]:
        """The rows in the order of one pass of one epoch."""
        purpose = ("rows", epoch, self.key, number)
        order = seeding.permutation(len(self.buffers), seed, *purpose)
        return self._blocks(
            [(int(b), seeding.permutation(self.buffers[b].rows, seed, *purpose, int(b))) for b in order]
        )

    def in_order(self) -> Iterator[Block]:
        return self._blocks([(b, np.arange(info.rows)) for b, info in enumerate(self.buffers)])

    def _blocks(self, plan: list[tuple[int, np.ndarray]]) -> Iterator[Block]:
        if self.cached is not None:
            yield Block(self.cached, np.concatenate([self.starts[b] + rows for b, rows in plan]))
            return
        for b, rows in plan:
            yield Block(self.load(b), rows)


_cache: dict[tuple[str, str, int], Partition] = {}


def partition(db: Database, run: runs.RunRow, table: str, key: int) -> Partition:
    """Give a partition, from the cache if the table has not changed since it was read."""
    try:
        return _partition(db, run, table, key)
    except CerebroError as error:
        if error.sqlstate != LOCK_NOT_AVAILABLE:
            raise
        raise CerebroError(
            f"table {table} is locked",
            detail="A statement such as DROP, TRUNCATE or ALTER TABLE has it, or waits for this run to end.",
            hint=f"When that statement is over: SELECT cerebro.resume({run.run_id}).",
            sqlstate=LOCK_NOT_AVAILABLE,
        ) from None


def _partition(db: Database, run: runs.RunRow, table: str, key: int) -> Partition:
    role, place = run.owner, (run.owner, table, key)
    found = _cache.pop(place, None)
    if found is None or found.version != db.as_caller(role, found.look)[0]:
        found = _read(db, role, table, key)
    if found.run_id != run.run_id and found.digest() != json.loads(run.versions)[table][key]:
        raise _changed(table, run.run_id)
    found.run_id = run.run_id
    _cache[place] = found
    if found.cached is None and found.buffers and _make_room(run, sum(b.nbytes for b in found.buffers)):
        found.cached = concatenate([found.load(number) for number in range(len(found.buffers))])
    return found


def versions(db: Database, run: runs.RunRow) -> str:
    """What the packed tables of a run hold now: every visit must find the same."""
    tables = [table for table in (run.source_table, run.validation_table) if table is not None]
    keys = range(run.segments)
    return json.dumps({t: [_read(db, run.owner, t, key).digest() for key in keys] for t in tables})


def _changed(table: str, run_id: int) -> CerebroError:
    return CerebroError(
        f"table {table} has changed since run {run_id} began",
        hint="Start a new run; leave its tables alone until it ends.",
        sqlstate=WRONG_STATE,
    )


def _read(db: Database, role: str, table: str, key: int) -> Partition:
    layout = db.as_caller(role, lambda: _layout(db, table))

    def look() -> tuple[object, list[partitions.Buffer]]:
        return partitions.buffers(db, table, key, layout.columns)

    def load(number: int) -> Dataset:
        buffer_id = buffers[number].buffer_id
        return layout.dataset(
            db.as_caller(role, lambda: partitions.read_buffer(db, table, key, buffer_id, layout.columns))
        )

    def digest() -> str:
        return db.as_caller(role, lambda: partitions.contents(db, table, key, layout.columns))

    version, buffers = db.as_caller(role, look)
    return Partition(table, key, version, buffers, look, digest, load)


def _make_room(run: runs.RunRow, size: int) -> bool:
    """Let go of what earlier runs have left, as far as needed; what this run uses stays."""
    budget = run.memory_mb * 2**20
    for old in [p for p in _cache.values() if p.cached is not None and p.run_id != run.run_id]:
        if _cached_bytes() + size > budget:
            old.cached = None
    return _cached_bytes() + size <= budget


def _cached_bytes() -> int:
    return sum(p.cached.nbytes for p in _cache.values() if p.cached is not None)


@dataclass(frozen=True)
class _Layout:
    """How a packed table's columns become inputs and targets."""

    columns: partitions.Columns
    kinds: tuple[str, ...]

    def dataset(self, row: Row) -> Dataset:
        inputs = [
            read.decode_buffer(row[c], row[f"{c}_shape"], read.FEATURES) for c in self.columns.independent
        ]
        targets = [
            Target(read.decode_buffer(row[c], row[f"{c}_shape"], _DTYPES[kind]), kind)
            for c, kind in zip(self.columns.dependent, self.kinds, strict=True)
        ]
        return Dataset(inputs, targets)


_DTYPES = {ONE_HOT: read.ONE_HOT, VALUE: read.FEATURES}


def _layout(db: Database, table: str) -> _Layout:
    schema, name = parse_table(table, "packed table")
    summary = packed.summary(db, schema, name)
    columns = partitions.Columns(summary.independent_varname, summary.dependent_varname)
    return _Layout(columns, tuple(ONE_HOT if one_hot else VALUE for one_hot in summary.one_hot))
