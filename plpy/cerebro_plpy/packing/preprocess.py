"""The two preprocessors: check everything, read once, deal, write."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..database import Database
from ..errors import DATATYPE_MISMATCH, DUPLICATE_TABLE, CerebroError
from ..store import names, packed
from ..store.session import setting
from . import dealing, sources
from . import options as option
from .columns import Item, parse_items
from .faults import Faults
from .labels import one_hot
from .reading import Column, batch_rows, open_column, place_of_labels, read_rows
from .sorting import Sorter

RESERVED = (packed.KEY, packed.BUFFER)


@dataclass
class Job:
    """Everything that was asked for, checked."""

    source: names.Table
    target: names.TargetTable
    spelled: tuple[str, str]
    dependents: list[sources.Part]
    independents: list[sources.Part]
    buffer_size: int | None
    divisor: float
    num_classes: list[int | None]
    segments: int
    seed: int
    memory: int
    shapes: Mapping[str | None, tuple[int, ...]]
    # What a validation table takes over from the training table, one per dependent or independent.
    class_values: list[list[str | None] | None] = field(default_factory=list)
    row_shapes: list[list[int]] = field(default_factory=list)

    @property
    def is_validation(self) -> bool:
        return bool(self.row_shapes)

    @property
    def parts(self) -> list[sources.Part]:
        return [*self.dependents, *self.independents]


def pack_training(
    db: Database,
    source_table: str | None,
    output_table: str | None,
    dependent_varname: str | None,
    independent_varname: str | None,
    buffer_size: int | None = None,
    normalizing_const: float | None = 1.0,
    num_classes: Sequence[int | None] | None = None,
    distribution_rules: str | None = None,
    options: str | None = None,
    search_path: str = "public",
) -> None:
    """Pack a training table."""
    chosen = option.parse(options, option.TRAINING)
    source, target = _tables(db, source_table, output_table, search_path)
    known = packed.columns_of(db, source)
    outputs = parse_items(dependent_varname, "dependent_varname")
    widths = _widths(num_classes, len(outputs))
    job = Job(
        source=source,
        target=target,
        spelled=(str(source_table), str(output_table)),
        dependents=sources.outputs(
            outputs, known, source.quoted, _tasks(outputs, known, widths, chosen.task)
        ),
        independents=sources.inputs(
            parse_items(independent_varname, "independent_varname"), known, source.quoted
        ),
        buffer_size=_buffer_size(buffer_size),
        divisor=_divisor(normalizing_const),
        num_classes=widths,
        segments=_segments(db, chosen.segments),
        seed=chosen.seed,
        memory=chosen.memory_mb << 20,
        shapes=chosen.shape,
    )
    _tell_ignored_rules(db, distribution_rules)
    _pack(db, job)


def pack_validation(
    db: Database,
    source_table: str | None,
    output_table: str | None,
    dependent_varname: str | None,
    independent_varname: str | None,
    training_preprocessor_table: str | None,
    buffer_size: int | None = None,
    distribution_rules: str | None = None,
    options: str | None = None,
    search_path: str = "public",
) -> None:
    """Pack a validation table with the constant, classes, segments and seed of its training table."""
    chosen = option.parse(options, option.VALIDATION)
    source, target = _tables(db, source_table, output_table, search_path)
    table = names.resolve_table(db, training_preprocessor_table, search_path, "training_preprocessor_table")
    training = packed.summary(db, table.schema, table.name)
    known = packed.columns_of(db, source)
    outputs = parse_items(dependent_varname, "dependent_varname")
    inputs = parse_items(independent_varname, "independent_varname")
    _same_count("dependent_varname", len(outputs), training.dependent_varname)
    dependents = sources.outputs(outputs, known, source.quoted, _tasks_of(training))
    independents = sources.inputs(inputs, known, source.quoted)
    _same_count("independent_varname", len(independents), training.independent_varname)
    _same_types(dependents, training)
    job = Job(
        source=source,
        target=target,
        spelled=(str(source_table), str(output_table)),
        dependents=dependents,
        independents=independents,
        buffer_size=_buffer_size(buffer_size),
        divisor=training.normalizing_const,
        num_classes=training.num_classes,
        segments=training.segments,
        seed=training.seed,
        memory=chosen.memory_mb << 20,
        shapes={},
        class_values=training.class_values,
        row_shapes=[*training.target_shapes, *training.input_shapes],
    )
    _tell_ignored_rules(db, distribution_rules)
    _pack(db, job)


def _tables(
    db: Database, source_table: str | None, output_table: str | None, search_path: str
) -> tuple[names.Table, names.TargetTable]:
    source = names.resolve_table(db, source_table, search_path, "input table")
    if output_table == source_table:
        raise CerebroError(
            f"output table {source.quoted} is the input table itself", sqlstate=DUPLICATE_TABLE
        )
    return source, names.target_table(db, output_table, search_path, suffixes=(packed.SUMMARY,))


def _tasks(
    items: Sequence[Item],
    known: Mapping[str, sources.SourceColumn],
    widths: Sequence[int | None],
    task: str | None,
) -> list[str | None]:
    """Floats are regression targets unless the caller says how many classes there are."""
    return [
        "classification" if task is None and width is not None and not _is_array(item, known) else task
        for item, width in zip(items, widths, strict=True)
    ]


def _is_array(item: Item, known: Mapping[str, sources.SourceColumn]) -> bool:
    column = known.get(item.columns[0])
    return item.bundled or (column is not None and column.is_array)


def _tasks_of(training: packed.PackedSummary) -> list[str | None]:
    return ["regression" if width is None else "classification" for width in training.num_classes]


def _same_count(parameter: str, count: int, of_training: Sequence[str]) -> None:
    if count != len(of_training):
        raise CerebroError(
            f"{parameter} has {count} columns, but the training table was packed with {len(of_training)}",
            detail=f"The training table has {', '.join(of_training)}.",
        )


def _same_types(dependents: Sequence[sources.Part], training: packed.PackedSummary) -> None:
    for part, expected in zip(dependents, training.dependent_vartype, strict=True):
        if part.shown_type != expected:
            raise CerebroError(
                f'dependent column "{part.name}" is {part.shown_type}, but the training table was packed from {expected}',
                hint=f"Cast it to {expected} in a view.",
                sqlstate=DATATYPE_MISMATCH,
            )


def _widths(num_classes: Sequence[int | None] | None, outputs: int) -> list[int | None]:
    widths = list(num_classes) if num_classes is not None else [None] * outputs
    if len(widths) != outputs:
        raise CerebroError(
            f"num_classes has {len(widths)} elements for {outputs} dependent columns",
            hint="Give one number, or NULL, for each dependent column.",
        )
    for width in widths:
        if width is not None and width < 1:
            raise CerebroError(f"num_classes must be positive, not {width}")
    return widths


def _buffer_size(buffer_size: int | None) -> int | None:
    if buffer_size is not None and buffer_size < 1:
        raise CerebroError(
            f"buffer_size must be a positive integer or NULL, not {buffer_size}",
            hint="NULL lets the preprocessor choose.",
        )
    return buffer_size


def _divisor(normalizing_const: float | None) -> float:
    divisor = 1.0 if normalizing_const is None else float(normalizing_const)
    if not (math.isfinite(divisor) and divisor > 0):
        raise CerebroError(f"normalizing_const must be a positive number or NULL, not {divisor:g}")
    return divisor


def _segments(db: Database, chosen: int | None) -> int:
    return chosen or int(setting(db, "segments") or 0) or len(os.sched_getaffinity(0))


def _tell_ignored_rules(db: Database, rules: str | None) -> None:
    if rules not in (None, "all_segments"):
        db.notice(f"distribution_rules {rules} is ignored on PostgreSQL: rows are dealt to all segments")


def _pack(db: Database, job: Job) -> None:
    _check_names(job)
    statement = packed.select_rows(job.source, job.parts)
    sample = packed.first_row(db, statement)
    if sample is None:
        raise CerebroError(f"input table {job.source.quoted} has no rows")
    seen = Faults()
    columns = _open(job, dict(sample), seen)
    batch = batch_rows(sample)
    sorter = Sorter([column.stored for column in columns], job.memory, batch)
    try:
        total = read_rows(db.scan(statement, batch=batch), columns, sorter, job.seed, seen)
        _check_rows(job, total, seen)
        _write(db, job, columns, sorter)
    finally:
        sorter.close()


def _check_names(job: Job) -> None:
    made = [made for part in job.parts for made in (part.name, part.name + packed.SHAPE)]
    for name in made:
        if made.count(name) > 1 or name in RESERVED:
            raise CerebroError(
                f'the packed table would have two columns called "{name}"',
                hint="Rename a column with a view.",
                sqlstate="42701",
            )
    for name in [part.name + packed.CLASS_VALUES for part in job.dependents] + made:
        if len(name.encode()) > names.LONGEST:
            raise CerebroError(
                f'the packed table or its summary would have a column "{name}", longer than {names.LONGEST} bytes',
                hint="Give the column a shorter name with a view.",
                sqlstate="42622",
            )


def _open(job: Job, sample: dict[str, bytes | str | None], seen: Faults) -> list[Column]:
    shapes = _input_shapes(job)
    columns = []
    for index, part in enumerate(job.parts):
        divisor = 1.0 if index < len(job.dependents) else job.divisor
        shape = shapes.get(index)
        columns.append(open_column(part, sample[f"c{index}"], shape, divisor, job.seed, seen))
    for column, shape in zip(columns, job.row_shapes, strict=False):
        if column.classes is None and list(column.shape) != shape:
            raise CerebroError(
                f'column "{column.part.name}" has rows of shape {list(column.shape)}, the training table of {shape}'
            )
    return columns


def _input_shapes(job: Job) -> dict[int, Sequence[int]]:
    """The shapes that rows are given, by place among the parts."""
    first = len(job.dependents)
    if job.is_validation:
        return {
            index: job.row_shapes[index]
            for index, part in enumerate(job.parts)
            if index >= first and (part.is_bytea or part.is_vector_of_columns)
        }
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


def _check_rows(job: Job, total: int, seen: Faults) -> None:
    if seen:
        raise seen.error(total)
    if total < job.segments:
        raise CerebroError(
            f"input table {job.source.quoted} has {total} rows, fewer than {job.segments} segments",
            hint="Validation rows are dealt to as many segments as training rows were."
            if job.is_validation
            else f'Give options {{"segments": {total}}} or less.',
        )


@dataclass
class _Labels:
    """A dependent column's classes, settled."""

    values: list[str | None] | None
    width: int | None
    places: np.ndarray | None = None


def _write(db: Database, job: Job, columns: Sequence[Column], sorter: Sorter) -> None:
    labels = [_settle(db, job, index, column) for index, column in enumerate(columns[: len(job.dependents)])]
    how = dealing.plan(sorter.rows, job.segments, _row_bytes(columns, labels), job.buffer_size)
    output = packed.Output(
        job.target,
        [part.name for part in job.dependents],
        [part.name for part in job.independents],
        job.segments,
    )
    packed.create(
        db, output, f"Rows of {job.spelled[0]} packed by Cerebro for training on {job.segments} segments"
    )
    writer = packed.Writer(db, output)
    for buffer in dealing.deal(sorter.blocks(), how):
        arrays = [
            _final(array, column, labels, i)
            for i, (array, column) in enumerate(zip(buffer.columns, columns, strict=True))
        ]
        writer.write(buffer.segment, arrays, buffer.segment * how.buffers + buffer.number)
    packed.write_summary(db, output, _summary(job, labels, how), f"How {job.spelled[1]} was packed")


def _row_bytes(columns: Sequence[Column], labels: Sequence[_Labels]) -> int:
    sizes = [np.dtype(kind).itemsize * width for kind, width in (column.stored for column in columns)]
    return max(sizes + [2 * (label.width or 0) for label in labels])


def _final(array: np.ndarray, column: Column, labels: Sequence[_Labels], index: int) -> np.ndarray:
    """The array as it is stored."""
    if column.classes is None:
        return array.reshape(len(array), *column.shape)
    label = labels[index]
    if label.places is None or label.width is None:
        raise CerebroError("classes are not settled", sqlstate="XX000")
    return one_hot(label.places[array[:, 0]], label.width)


def _settle(db: Database, job: Job, index: int, column: Column) -> _Labels:
    if column.classes is None:
        width = column.shape[-1] if column.part.kind == sources.ONE_HOT else None
        _check_width(job, index, column, width)
        return _Labels(None, width)
    labels = column.classes.labels
    if job.is_validation:
        return _known_labels(db, column, labels, job.class_values[index])
    texts = [label for label in labels if label is not None]
    has_null = len(texts) < len(labels)
    places = {
        text: place + has_null for text, place in packed.class_positions(db, column.part, texts).items()
    }
    distinct = has_null + len(set(places.values()))
    width = job.num_classes[index] or distinct
    if width < distinct:
        raise CerebroError(
            f'num_classes is {width}, but column "{column.part.name}" has {distinct} distinct values',
            hint="It must be equal to or greater than the number of distinct class values.",
        )
    values: list[str | None] = [None] * width
    for text in sorted(places, reverse=True):
        values[places[text]] = text
    return _Labels(values, width, place_of_labels(labels, places, 0))


def _check_width(job: Job, index: int, column: Column, width: int | None) -> None:
    given = job.num_classes[index]
    if given is not None and given != width:
        what = f"vectors of {width}" if width else "numbers, not classes"
        raise CerebroError(f'num_classes is {given}, but column "{column.part.name}" holds {what}')


def _known_labels(
    db: Database, column: Column, labels: Sequence[str | None], values: list[str | None] | None
) -> _Labels:
    """Find a validation table's labels among the training table's class values."""
    if values is None:
        raise CerebroError(
            f'column "{column.part.name}" has classes, but the training table was packed without',
            sqlstate="XX000",
        )
    places = packed.known_positions(db, column.part, [label for label in labels if label is not None], values)
    null_place = values.index(None) if None in values[:1] else None
    strange = [label for label in labels if (null_place is None if label is None else label not in places)]
    if strange:
        shown = ", ".join("NULL" if label is None else label for label in sorted(strange, key=str)[:10])
        raise CerebroError(
            f'column "{column.part.name}" has {len(strange)} class values that the training table has not: {shown}',
            detail=f"The training table has {', '.join('NULL' if v is None else v for v in values[:100])}.",
            hint="Class values of validation rows must be a subset of those of the training rows.",
        )
    return _Labels(values, len(values), place_of_labels(labels, places, null_place))


def _summary(job: Job, labels: Sequence[_Labels], how: dealing.Deal) -> packed.PackedSummary:
    return packed.PackedSummary(
        source_table=job.spelled[0],
        output_table=job.spelled[1],
        dependent_varname=[part.name for part in job.dependents],
        independent_varname=[part.name for part in job.independents],
        dependent_vartype=[part.shown_type for part in job.dependents],
        class_values=[label.values for label in labels],
        buffer_size=how.buffer_size,
        normalizing_const=job.divisor,
        num_classes=[label.width for label in labels],
        distribution_rules="all_segments",
        internal_gpu_config="all_segments",
        segments=job.segments,
        seed=job.seed,
        total_rows=how.rows,
        class_value_types={part.name + packed.CLASS_VALUES: f"{part.base_type}[]" for part in job.dependents},
    )
