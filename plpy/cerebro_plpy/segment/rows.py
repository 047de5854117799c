"""A segment's partition in memory: decoded once, and kept until its run is over.

A partition that fits into `memory_mb` is one contiguous dataset. A larger partition is read buffer by buffer
in each pass. Both have the same order of rows: buffers are shuffled, and then the rows inside each buffer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from cerebro_plpy import memory, seeding
from cerebro_plpy.database import Database, Row
from cerebro_plpy.engine.models.data import ONE_HOT, VALUE, WEIGHT, Block, Dataset, Target, concatenate
from cerebro_plpy.errors import LOCK_NOT_AVAILABLE, WRONG_STATE, CerebroError
from cerebro_plpy.logical import budget
from cerebro_plpy.packing.rows import read
from cerebro_plpy.store.names import parse_table
from cerebro_plpy.store.packed import packed, partitions
from cerebro_plpy.store.runs import runs


class PartitionSource(Protocol):
    """A source of the rows of one partition, read with the rights of one role."""

    def look(self) -> tuple[object, list[partitions.Buffer]]:
        """Return a version that changes whenever a row of the partition does, and the partition's buffers."""
        ...

    def digest(self) -> str:
        """Return a digest of the partition's content, which does not depend on where its rows are stored."""
        ...

    def load(self, number: int) -> Dataset:
        """Return the rows of the buffer with this number."""
        ...

    def load_all(self, within_budget: bool) -> Dataset | None:
        """Return the rows of all buffers, or None if they are to be read buffer by buffer.

        `within_budget` says whether the rows fit into the run's `memory_mb`.
        """
        ...


# The segment number of a group that lies on one segment: its order of rows is as if it were packed alone.
ALONE = 0


@dataclass(frozen=True)
class Subset:
    """A selection of a packed table's rows: all rows, one group, or the rows outside or `inside` a fold."""

    fold: int | None = None
    inside: bool = False
    group: int | None = None

    def has(self, buffer: partitions.Buffer) -> bool:
        return self.fold is None or (buffer.fold == self.fold) is self.inside


@dataclass(frozen=True)
class Stretch:
    """A range of consecutive rows in one buffer of a partition."""

    buffer: int
    first: int
    rows: int


# An order of rows: stretches, and for each the places of its rows within it.
_RowOrder = list[tuple[Stretch, np.ndarray]]


# A net of a run, by its model_id, and a batch size.
Mark = tuple[int, int]


@dataclass
class KeptFeatures:
    """The outputs of a trunk for a partition's rows; `marks` are the nets and batch sizes that use them."""

    rows: Dataset
    marks: set[Mark]


@dataclass
class Partition:
    """The rows of one packed table on one segment."""

    run_id: int
    table: str
    segment: int
    version: object
    buffers: list[partitions.Buffer]
    source: PartitionSource
    cached: Dataset | None = None
    # The outputs of trunks for its rows, by the trunk's digest and the batch size (`features.py`).
    features: dict[tuple[str, int], KeptFeatures] = field(default_factory=dict)
    starts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.starts = np.concatenate([[0], np.cumsum([b.rows for b in self.buffers])]).astype(np.int64)

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    def take(self, places: np.ndarray) -> Dataset:
        """Return the rows at these places of the partition, in the order of `places`."""
        if self.cached is not None:
            return self.cached.take(places)
        buffers = np.searchsorted(self.starts, places, side="right") - 1
        cuts = np.flatnonzero(np.diff(buffers)) + 1
        parts = (
            self.source.load(int(buffers[some[0]])).take(places[some] - self.starts[buffers[some[0]]])
            for some in np.split(np.arange(len(places)), cuts)
        )
        return concatenate(parts, len(places))

    def choose_rows(self, subset: Subset) -> PartitionRows:
        """Return the rows of the partition that belong to a subset."""
        if subset.group is not None:
            return PartitionRows(self, self.groups.get(subset.group, ()))
        chosen = [(b, buffer) for b, buffer in enumerate(self.buffers) if subset.has(buffer)]
        return PartitionRows(self, [Stretch(b, 0, buffer.rows) for b, buffer in chosen])

    def whole_group(self, number: int) -> PartitionRows:
        """Return the rows of a group that lies only on this segment, ordered as if it were packed alone."""
        return replace(self.choose_rows(Subset(group=number)), segment=ALONE)

    @cached_property
    def groups(self) -> Mapping[int, Sequence[Stretch]]:
        """The stretches that hold the rows of each group, by the group's number."""
        found: dict[int, list[Stretch]] = {}
        for b, buffer in enumerate(self.buffers):
            first = 0
            for number, rows in buffer.groups:
                found.setdefault(number, []).append(Stretch(b, first, rows))
                first += rows
        return found


@dataclass(frozen=True)
class PartitionRows:
    """A selection of a partition's rows, as stretches; it yields them in order or shuffled."""

    partition: Partition
    chosen: Sequence[Stretch]
    # The segment number that decides the order of rows, if it is not the partition's own.
    segment: int | None = None
    # How many epochs make up one pass over the rows; each epoch then has another part of them.
    epochs_per_pass: int = 1

    @property
    def all_rows(self) -> int:
        return sum(one.rows for one in self.chosen)

    @property
    def rows(self) -> int:
        """The number of rows in each epoch."""
        return max(self.all_rows // self.epochs_per_pass, min(1, self.all_rows))

    def shuffled(self, seed: int, epoch: int, number: int) -> Iterator[Block]:
        """Yield the rows of an epoch as blocks, in the shuffled order of its pass with this `number`."""
        return self._blocks(self._shuffle(seed, epoch, number))

    def in_order(self, epoch: int = 1) -> Iterator[Block]:
        return self._blocks(self._plain(epoch))

    def shuffled_places(self, seed: int, epoch: int, number: int) -> np.ndarray:
        """Return the places in the partition of an epoch's rows, in the order that `shuffled` gives them."""
        return self._places(self._shuffle(seed, epoch, number))

    def places_in_order(self, epoch: int = 1) -> np.ndarray:
        return self._places(self._plain(epoch))

    def _shuffle(self, seed: int, epoch: int, number: int) -> _RowOrder:
        segment = self.partition.segment if self.segment is None else self.segment
        purpose = ("rows", 1 + (epoch - 1) // self.epochs_per_pass, segment, number)
        order = seeding.permutation(len(self.chosen), seed, *purpose)
        return [
            (self.chosen[i], seeding.permutation(self.chosen[i].rows, seed, *purpose, int(i))[within])
            for i, within in self._part(order, epoch)
        ]

    def _plain(self, epoch: int) -> _RowOrder:
        return [
            (self.chosen[i], np.arange(self.chosen[i].rows)[within])
            for i, within in self._part(np.arange(len(self.chosen)), epoch)
        ]

    def _part(self, order: np.ndarray, epoch: int) -> Iterator[tuple[int, slice]]:
        """Yield, in the given order, each stretch's number and the slice of its rows that the epoch has."""
        if not self.rows:
            return
        first = (epoch - 1) % self.epochs_per_pass % (self.all_rows // self.rows) * self.rows
        last = first + self.rows
        for i in order:
            rows = self.chosen[i].rows
            if first < rows and last > 0:
                yield int(i), slice(max(0, first), min(rows, last))
            first, last = first - rows, last - rows

    def _places(self, order: _RowOrder) -> np.ndarray:
        starts = self.partition.starts
        places = [starts[one.buffer] + one.first + rows for one, rows in order]
        return np.concatenate(places) if places else np.zeros(0, np.int64)

    def _blocks(self, order: _RowOrder) -> Iterator[Block]:
        if (cached := self.partition.cached) is not None:
            yield Block(cached, self._places(order))
            return
        for one, rows in order:
            yield Block(self.partition.source.load(one.buffer), one.first + rows)


def choose_training_rows(run: runs.RunRow, partition: Partition, subset: Subset) -> PartitionRows:
    """Return the partition's rows in a subset, divided among epochs as the run's `epochs_per_pass` says."""
    epochs = runs.limits(run).get("epochs_per_pass") or 1
    return replace(partition.choose_rows(subset), epochs_per_pass=epochs)


def choose_measured_rows(run: runs.RunRow, partition: Partition, subset: Subset) -> PartitionRows:
    """Return the validation rows of a subset on which configs are measured: all, or a sample by the seed.

    Measuring on many rows after each part of a pass would take longer than the part.
    """
    found = partition.choose_rows(subset)
    most = budget.count_most_measured(found.all_rows, runs.limits(run).get("epochs_per_pass"))
    if most >= found.all_rows:
        return found
    order = seeding.permutation(len(found.chosen), run.seed, "measured", partition.segment)
    sample: list[Stretch] = []
    for one in (found.chosen[i] for i in order):
        sample.append(replace(one, rows=min(one.rows, most)))
        most -= sample[-1].rows
        if not most:
            break
    return replace(found, chosen=sample)


class Partitions(dict[tuple[str, str, int], Partition]):
    """Partitions that this session has read, by role, table and segment; only one run's are kept."""


# Returns the source of a table's partition on a segment, for a run.
FindSource = Callable[[runs.RunRow, str, int], PartitionSource]


def partition(source: FindSource, run: runs.RunRow, table: str, segment: int) -> Partition:
    """Return a table's partition on a segment, from memory if its rows have not changed since it was read.

    Raise an error if the rows are not those with which the run began.
    """
    with _naming(table, f"When that statement is over: SELECT cerebro.resume({run.run_id})."):
        return _partition(source, run, table, segment)


@contextmanager
def _naming(table: str, hint: str) -> Iterator[None]:
    """Replace the server's error that a lock is not available by an error that names the table."""
    try:
        yield
    except CerebroError as error:
        if error.sqlstate != LOCK_NOT_AVAILABLE:
            raise
        raise CerebroError(
            f"table {table} is locked",
            detail="A statement such as DROP, TRUNCATE or ALTER TABLE has it, or waits for this run to end.",
            hint=hint,
            sqlstate=LOCK_NOT_AVAILABLE,
        ) from None


def _partition(source: FindSource, run: runs.RunRow, table: str, segment: int) -> Partition:
    kept = memory.get_instance(Partitions)
    if any(other.run_id != run.run_id for other in kept.values()):
        kept.clear()
    place = (run.owner, table, segment)
    found = kept.get(place)
    if found is None or found.version != found.source.look()[0]:
        kept.pop(place, None)
        fresh = source(run, table, segment)
        found = Partition(run.run_id, table, segment, *fresh.look(), fresh)
        if fresh.digest() != json.loads(run.versions)[table][segment]:
            raise _changed(table, run.run_id)
        kept[place] = found
    if found.cached is None and found.buffers:
        size = _cached_bytes() + sum(b.nbytes for b in found.buffers)
        found.cached = found.source.load_all(size <= run.memory_mb * 2**20)
    return found


def let_go() -> None:
    """Drop all partitions that this session keeps, since their run is over."""
    memory.get_instance(Partitions).clear()


def tables(run: runs.RunRow) -> list[str]:
    """Return the names of the packed tables of a run, each once."""
    return list(dict.fromkeys(named_tables(run).values()))


def measured_on(run: runs.RunRow, config: runs.ConfigRow) -> dict[str, tuple[str, Subset]]:
    """Return the table and subset on which a config is measured, under "training" and "validation".

    In cross-validation, the validation rows are those of the fold that the config is not trained on.
    """
    if config.fold is not None:
        found = {
            "training": (run.source_table, Subset(config.fold)),
            "validation": (run.source_table, Subset(config.fold, inside=True)),
        }
    else:
        subset = Subset() if config.group_id is None else Subset(group=config.group_id)
        found = {dataset: (table, subset) for dataset, table in named_tables(run).items()}
    if "validation" in found and not runs.limits(run).get("training_metrics", True):
        del found["training"]
    return found


def named_tables(run: runs.RunRow) -> dict[str, str]:
    """Return the packed tables of a run, under "training" and, if it has a validation table, "validation"."""
    found = {"training": run.source_table, "validation": run.validation_table}
    return {dataset: table for dataset, table in found.items() if table is not None}


def with_versions(db: Database, run: runs.RunRow) -> runs.RunRow:
    """Return the run with the present versions and digests of its packed tables.

    Each visit compares the rows that it reads with these digests.
    """
    layouts, digests = {}, {}
    for table in tables(run):
        layouts[table], digests[table] = _digests(db, run.owner, table)
        _check_version(run, table, layouts[table])
    packed_versions = {
        table: {
            "version": found.version,
            "below": found.columns.below,
            "class_counts": dict(found.class_counts) if table == run.source_table else {},
        }
        for table, found in layouts.items()
    }
    return replace(run, versions=json.dumps(digests), packed_versions=json.dumps(packed_versions))


def _check_version(run: runs.RunRow, table: str, found: Layout) -> None:
    """Raise an error if rows were added to a packed table since this call read its groups."""
    read = json.loads(run.packed_versions).get(table)
    if read is not None and read["version"] != found.version:
        raise CerebroError(
            f"rows were added to {table} while this call began",
            hint="Call again: nothing has been trained.",
            sqlstate=WRONG_STATE,
        )


def _digests(db: Database, role: str, table: str) -> tuple[Layout, list[str]]:
    """Return a packed table's layout, and a digest of its rows for each segment.

    Both are read with the caller's rights, in separate guards, so that neither reading can affect the other.
    """
    with _naming(table, "Call again when that statement is over: this run has not begun."):
        found = db.as_caller(role, layout, db, table)
        by_key = db.as_caller(role, partitions.contents, db, table, found.keys, found.columns)
    return found, [by_key[key] for key in found.keys]


def _changed(table: str, run_id: int) -> CerebroError:
    return CerebroError(
        f"table {table} has changed since run {run_id} began",
        hint="Start a new run; leave its tables alone until it ends.",
        sqlstate=WRONG_STATE,
    )


class TableSource:
    """A source that reads a partition from its packed table, by statements of this session."""

    def __init__(self, db: Database, role: str, table: str, segment: int, known: Layout) -> None:
        self._db, self._role, self._table = db, role, table
        self.layout = known
        self.key = self.layout.keys[segment]
        self._ways = partitions.looking(table, self.key, self.layout.columns)
        self._buffers: list[partitions.Buffer] = []

    def look(self) -> tuple[object, list[partitions.Buffer]]:
        found = self._db.as_caller(self._role, partitions.look, self._db, self._ways)
        version, self._buffers = partitions.parse(found)
        return version, self._buffers

    @cached_property
    def looking(self) -> str:
        """The statement that lists the partition's buffers, to be run with the rights of the run's caller."""
        by_place, by_contents = self._ways
        return by_place if partitions.may_read(self._db, self._role, self._table) else by_contents

    def digest(self) -> str:
        columns = self.layout.columns
        return self._db.as_caller(
            self._role, lambda: partitions.contents(self._db, self._table, [self.key], columns)[self.key]
        )

    def load(self, number: int) -> Dataset:
        return self.layout.dataset(self.read(number))

    def read(self, number: int) -> Row:
        """Return the bytes and shapes of the buffer with this number."""
        columns, buffer_id = self.layout.columns, self._buffers[number].buffer_id
        return self._db.as_caller(
            self._role, partitions.read_buffer, self._db, self._table, self.key, buffer_id, columns
        )

    def load_all(self, within_budget: bool) -> Dataset | None:
        if not within_budget:
            return None
        buffers = map(self.load, range(len(self._buffers)))
        return concatenate(buffers, sum(buffer.rows for buffer in self._buffers))


def _cached_bytes() -> int:
    return sum(p.cached.nbytes for p in memory.get_instance(Partitions).values() if p.cached is not None)


@dataclass(frozen=True)
class Layout:
    """A description of how a packed table's columns become inputs and targets."""

    columns: partitions.Columns
    kinds: tuple[str, ...]
    keys: Sequence[int]
    # The version of the packed table.
    version: int
    class_counts: Mapping[str, Sequence[int] | None]

    def dataset(self, row: Row) -> Dataset:
        inputs = [
            read.decode_buffer(row[c], row[f"{c}_shape"], read.FEATURES) for c in self.columns.independent
        ]
        targets = [
            Target(read.decode_buffer(row[c], row[f"{c}_shape"], DTYPES[kind]), kind)
            for c, kind in zip(self.columns.dependent, self.kinds, strict=True)
        ]
        return Dataset(inputs, targets)


DTYPES = {ONE_HOT: read.ONE_HOT, VALUE: read.FEATURES, WEIGHT: read.FEATURES}


def layout(db: Database, table: str, below: int | None = None) -> Layout:
    """Return how a packed table's columns become inputs and targets.

    Only buffers with numbers below `below` will be read; if it is None, all buffers of the newest version.
    """
    schema, name = parse_table(table, "packed table")
    summary = packed.summary(db, schema, name)
    kinds = [ONE_HOT if one_hot else VALUE for one_hot in summary.one_hot]
    if summary.weight_varname is not None:
        kinds.append(WEIGHT)
    columns = partitions.columns_of(summary, below)
    counts = dict(zip(summary.dependent_varname, summary.class_counts, strict=True))
    return Layout(columns, tuple(kinds), summary.keys, summary.version, counts)
