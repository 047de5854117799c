"""Packs a table: reads its rows once, sorts them by hash, deals them to segments, and writes the buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DUPLICATE_COLUMN, CerebroError
from cerebro_plpy.packing.columns import classes
from cerebro_plpy.packing.columns.classes import Labels
from cerebro_plpy.packing.dividing import folds
from cerebro_plpy.packing.dividing.grouping import Grouping
from cerebro_plpy.packing.dividing.parts import PartsRead
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.job import Job
from cerebro_plpy.packing.rows import dealing, dealing_groups
from cerebro_plpy.packing.rows.dealing_groups import ClassesSeen, GroupDeal
from cerebro_plpy.packing.rows.placing import homes
from cerebro_plpy.packing.rows.reading import Column, batch_rows, open_column, read_rows, samples
from cerebro_plpy.packing.rows.sorting import Sorter
from cerebro_plpy.store import names
from cerebro_plpy.store.packed import groups, packed
from cerebro_plpy.store.packed.append import PackedVersion

RESERVED = (
    packed.KEY, packed.BUFFER, packed.WEIGHT, packed.WEIGHT + packed.SHAPE, packed.FOLD, packed.GROUPS,
)  # fmt: skip


@dataclass
class ReadRows:
    """The rows of a job, read and sorted, with their labels, counts and sizes."""

    rows: PackedRows
    labels: list[Labels]
    class_counts: list[list[int] | None]
    total: int
    row_bytes: int
    folds: Sequence[int] = ()
    groups: Sequence[int] = ()
    # Has the segments of groups if these are already decided.
    grouping: Grouping | None = None

    def plan(self, segments: int, most_rows: int | None) -> dealing.Deal | GroupDeal:
        if self.grouping is not None:
            most = dealing.most_rows_of(segments, self.row_bytes, most_rows)
            return GroupDeal(self.groups, self._homes(self.grouping, segments), segments, most)
        return dealing.plan(
            self.total, segments, row_bytes=self.row_bytes, most_rows=most_rows, folds=self.folds
        )

    def _homes(self, grouping: Grouping, segments: int) -> Sequence[int]:
        before = grouping.rows_before
        if grouping.homes is not None and not before:
            return grouping.homes
        in_all = [a + b for a, b in zip(before or [0] * len(self.groups), self.groups, strict=True)]
        return homes(in_all, segments, grouping.homes or ())


def pack(db: Database, job: Job) -> None:
    """Pack the rows of a job: create the packed table and its summary."""
    _check_names(job)
    output = output_of(job)
    names.check_free(db, job.target.schema, output.partitions, "partition")
    with gathered(db, job) as found:
        how = found.plan(job.segments, job.buffer_size)
        about = f"Rows of {job.spelled[0]}, packed by Cerebro for {job.segments} segments"
        packed.create(db, output, about)
        classes_seen = found.rows.write(output, found.labels, how)
        if isinstance(how, GroupDeal) and job.grouping is not None:
            groups.finish(
                db,
                job.grouping.table,
                how.groups,
                segments=how.segments_of_groups,
                classes=classes_seen or [None] * len(how.groups),
                version=None if job.is_validation else 1,
            )
        summary = _summary(job, found, how)
        packed.write_summary(db, output, summary, f"How {job.spelled[1]} was packed")


@contextmanager
def gathered(db: Database, job: Job) -> Iterator[ReadRows]:
    """Yield the rows of the source, read and sorted; raise one error that lists all faults in them."""
    statement = packed.select_rows(job.source, job.fields)
    sample = packed.first_row(db, statement)
    if sample is None:
        raise CerebroError(f"input table {job.source.quoted} has no rows")
    seen = Faults()
    columns = _open(job, dict(sample), seen)
    parts = job.parts_read
    rows = db.server.rows(job, columns, seen, parts)
    try:
        total = rows.read(statement, sample)
        if seen:
            raise seen.error(total)
        for remark in seen.remarks(total):
            db.notice(remark)
        in_parts = [] if parts is None else parts.rows.tolist()
        if job.folds:
            folds.check(in_parts, job.source)
        labels = [
            classes.settle(db, job, index, column)
            for index, column in enumerate(columns[: len(job.dependents)])
        ]
        counts = [label.counts(column) for label, column in zip(labels, columns, strict=False)]
        yield ReadRows(
            rows=rows,
            labels=labels,
            class_counts=counts,
            total=total,
            row_bytes=_row_bytes(columns, labels),
            folds=in_parts if job.folds else (),
            groups=in_parts if job.grouping else (),
            grouping=job.grouping,
        )
    finally:
        rows.close()


class PackedRows(Protocol):
    """The rows of one table, which are read, sorted and dealt in this session or on a cluster's segments."""

    def read(self, statement: str, sample: packed.Row) -> int:
        """Read all rows of the statement; return their number."""
        ...

    def write(
        self, output: packed.PackedOutput, labels: Sequence[Labels], how: dealing.Deal | GroupDeal
    ) -> Sequence[int] | None:
        """Write the buffers; return the number of classes in each group; None without groups or classes."""
        ...

    def close(self) -> None: ...


class RowsHere:
    """The rows of one table, all of them read, sorted and dealt in this session."""

    def __init__(
        self, db: Database, job: Job, columns: Sequence[Column], seen: Faults, parts: PartsRead | None
    ) -> None:
        self._db, self._job, self._columns, self._seen = db, job, columns, seen
        self._parts = parts
        self._sorter: Sorter | None = None

    def read(self, statement: str, sample: packed.Row) -> int:
        batch = batch_rows(sample, self._columns)
        stored = [column.stored for column in self._columns]
        self._sorter = Sorter(stored, self._job.memory, batch)
        batches = self._db.scan(statement, batch=batch)
        return read_rows(
            batches,
            self._columns,
            sorter=self._sorter,
            seed=self._job.seed,
            seen=self._seen,
            parts=self._parts,
        )

    def write(
        self, output: packed.PackedOutput, labels: Sequence[Labels], how: dealing.Deal | GroupDeal
    ) -> Sequence[int] | None:
        writer = packed.PackedWriter(self._db, output)
        width = labels[0].width
        seen = ClassesSeen(len(how.groups), width) if isinstance(how, GroupDeal) and width else None
        dealt = [how.slices(segment) for segment in range(how.segments)]
        for buffer in self._buffers(how):
            filled = [
                classes.encode(buffer.column(i), column, labels, i) for i, column in enumerate(self._columns)
            ]
            segment, number = buffer.segment, buffer.number
            one = dealt[segment][number]
            if seen is not None and one.groups is not None:
                seen.take(one.groups, filled[0])
            fields = [packed.as_field(array) for array in filled]
            writer.write(how.place(segment), fields, how.buffer_id(segment, number), one.fold or one.groups)
        return None if seen is None else seen.counts()

    def _buffers(self, how: dealing.Deal | GroupDeal) -> Iterator[dealing.DealtBuffer]:
        if self._sorter is None:
            return iter(())
        if isinstance(how, GroupDeal):
            return dealing_groups.deal(self._sorter, how)
        return dealing.deal(self._sorter, how)

    def close(self) -> None:
        if self._sorter is not None:
            self._sorter.close()


def _check_names(job: Job) -> None:
    named = [*job.dependents, *job.independents]
    made = [made for part in named for made in (part.name, part.name + packed.SHAPE)]
    for name in made:
        if made.count(name) > 1 or name in RESERVED:
            raise CerebroError(
                f'the packed table would have two columns called "{name}"',
                hint="Rename a column with a view.",
                sqlstate=DUPLICATE_COLUMN,
            )
    for name in [part.name + packed.CLASS_VALUES for part in job.dependents] + made:
        if len(name.encode()) > names.LONGEST:
            raise CerebroError(
                f'the name of a packed column would be longer than {names.LONGEST} bytes: "{name}"',
                hint="Give the column a shorter name with a view.",
                sqlstate="42622",
            )


def _open(job: Job, sample: dict[str, bytes | str | None], seen: Faults) -> list[Column]:
    shapes = _input_shapes(job)
    columns = []
    given = samples(sample, job.parts)
    for index, part in enumerate(job.parts):
        shape = shapes.get(index)
        columns.append(
            open_column(
                part=part,
                sample=given[index],
                shape=shape,
                divisor=job.divisor_of(part),
                seed=job.seed,
                seen=seen,
            )
        )
    for column, shape in zip(columns, job.row_shapes, strict=False):
        if column.classes is None and list(column.shape) != shape:
            raise CerebroError(
                f'column "{column.part.name}" has rows of shape {list(column.shape)}, not {shape}',
                hint="Validation rows must have the shape of the training rows.",
            )
    return columns


def _input_shapes(job: Job) -> dict[int, Sequence[int]]:
    """Return the shapes that the caller or the training table sets for inputs, by the index of the column."""
    first = len(job.dependents)
    if job.is_validation:
        return dict(enumerate(job.row_shapes[first:], first))
    given = dict(job.shapes)
    if None in given and len(job.independents) > 1:
        raise CerebroError(
            f'option "shape" is one list, but there are {len(job.independents)} inputs',
            hint='Write {"shape": {"column": [32, 32, 3]}}.',
        )
    known = {part.name: index for index, part in enumerate(job.independents, first)}
    if None in given:
        return {first: given[None]}
    for name in given:
        if name not in known:
            raise CerebroError(f'option "shape" names "{name}", which is not an input', detail=_listed(known))
    return {known[str(name)]: shape for name, shape in given.items()}


def _listed(known: Mapping[str, int]) -> str:
    return f"The inputs are {', '.join(known)}."


def output_of(job: Job) -> packed.PackedOutput:
    dependents, independents = ([part.name for part in parts] for parts in (job.dependents, job.independents))
    return packed.PackedOutput(
        job.target,
        dependents,
        independents,
        segments=job.segments,
        dist_keys=job.dist_keys,
        weighted=job.weight is not None,
        folded=job.folds is not None,
        grouped=job.grouping is not None,
    )


def _row_bytes(columns: Sequence[Column], labels: Sequence[Labels]) -> int:
    return max([column.nbytes for column in columns] + [2 * (label.width or 0) for label in labels])


def _class_types(job: Job) -> list[str]:
    """Return the SQL array type of each label's class values.

    Validation rows take the types of their training table.
    """
    return job.class_types or [f"{part.base_type}[]" for part in job.dependents]


def _summary(job: Job, found: ReadRows, how: dealing.Deal | GroupDeal) -> packed.PackedSummary:
    return packed.PackedSummary(
        source_table=job.spelled[0],
        output_table=job.spelled[1],
        dependent_varname=[part.name for part in job.dependents],
        independent_varname=[part.name for part in job.independents],
        dependent_vartype=[part.shown_type for part in job.dependents],
        class_values=[label.values for label in found.labels],
        class_counts=found.class_counts,
        buffer_size=how.buffer_size,
        normalizing_const=job.divisor,
        num_classes=[label.width for label in found.labels],
        distribution_rules=job.rules.shown,
        internal_gpu_config=job.rules.gpu_config,
        segments=job.segments,
        seed=job.seed,
        total_rows=how.rows,
        class_value_types={
            part.name + packed.CLASS_VALUES: kind
            for part, kind in zip(job.dependents, _class_types(job), strict=True)
        },
        dist_keys=job.dist_keys,
        features=job.features,
        weight_varname=job.weight.first.name if job.weight else None,
        folds=job.folds,
        group_by=job.grouping and list(job.grouping.columns),
        versions=[PackedVersion(how.rows, how.buffers_after, job.spelled[0])],
    )
