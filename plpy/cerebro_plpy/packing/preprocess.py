"""The preprocessors of training and validation tables. They check every argument before they read rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, CerebroError
from cerebro_plpy.features.specification import Specification
from cerebro_plpy.packing import options as option
from cerebro_plpy.packing.columns import inputs, outliers, sources, telltale
from cerebro_plpy.packing.columns.grammar import Item, parse_items
from cerebro_plpy.packing.dividing import folds, grouping, holdout
from cerebro_plpy.packing.job import Job, Rules
from cerebro_plpy.packing.pack import pack
from cerebro_plpy.packing.rows.reading import PackedPart
from cerebro_plpy.store import names
from cerebro_plpy.store.packed import packed, source_rows, splits
from cerebro_plpy.store.session import usual_segments

# The suffix of the table of rows that are held out.
VALIDATION = "_validation"


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
    share: float | None = None,
) -> None:
    """Pack a training table and its held-out rows; with `share`, about so many of those that have a label."""
    chosen = option.parse(options, option.TRAINING)
    source, target = _tables(db, source_table, output_table)
    known = packed.columns_of(db, source)
    outputs = parse_items(dependent_varname, "dependent_varname", known)
    widths, size = _widths(num_classes, len(outputs)), _buffer_size(buffer_size)
    divisor, rules = _divisor(normalizing_const), db.server.rules(distribution_rules)
    _check_alone(chosen, divisor, independent_varname)
    segments = chosen.segments or _usual_segments(db, source, rules)
    dependents = _dependents(db, source, known, outputs, widths, chosen=chosen)
    label, seed = dependents[0].first, chosen.seed
    with splits.drawn(db, source, known, label, share=share, seed=seed, schema=target.schema) as source:
        held, held_target, in_folds, in_groups, found = None, None, None, None, None
        weight = _weight(db, source, known, chosen.weight)
        if chosen.validation is not None:
            source, held = holdout.tables(db, source, known, said=chosen.validation, label=label, seed=seed)
            held_target = _validation_table(db, str(output_table))
        if chosen.folds is not None:
            source, in_folds = folds.table(db, source, known, said=chosen.folds, label=label, seed=seed)
        if chosen.group_by is not None:
            source, in_groups = grouping.numbered(db, source, known, chosen=chosen, spelled=str(output_table))
        if chosen.columns is not None:
            found = inputs.specify(db, source, known, independent_varname, outputs=dependents, chosen=chosen)
        job = Job(
            source=source,
            target=target,
            spelled=(str(source_table), str(output_table)),
            dependents=dependents,
            independents=_independents(independent_varname, known, source, found),
            buffer_size=size,
            divisor=divisor,
            num_classes=widths,
            segments=segments,
            seed=chosen.seed,
            memory=chosen.memory_mb << 20,
            shapes=chosen.shape,
            rules=rules,
            dist_keys=db.server.distribution_keys(segments, rules),
            features=found,
            weight=weight,
            folds=in_folds,
            grouping=in_groups,
        )
        pack(db, job)
        telltale.tell(db, target)
        if held is not None and held_target is not None:
            _pack_apart(db, job, held, held_target, known)


def _dependents(
    db: Database,
    source: names.Table,
    known: Mapping[str, packed.SourceColumn],
    outputs: Sequence[Item],
    widths: Sequence[int | None],
    chosen: option.PackOptions,
) -> list[sources.SourcePart]:
    """Return the label columns of the packed table; send a notice about a numeric label with an outlier."""
    found = sources.outputs(outputs, known, source.quoted, _tasks(outputs, known, widths, chosen.task))
    for one in found if chosen.columns is not None else ():
        column = one.first
        is_number = column.element in sources.NUMBERS and not column.is_array
        if one.kind == sources.VALUES and is_number and len(one.columns) == 1:
            outliers.tell_target(db, source, column)
    return found


def _pack_apart(
    db: Database,
    job: Job,
    held: names.Table,
    target: names.TargetTable,
    known: Mapping[str, packed.SourceColumn],
) -> None:
    """Pack the rows that were held out into a table of their own, in the same way as the training rows."""
    spelled = job.spelled[0], names.with_suffix(job.spelled[1], VALIDATION)
    training = names.resolve_table(db, job.spelled[1], "output table")
    summary = packed.summary(db, job.target.schema, job.target.name)
    like = _like(replace(job, source=held, target=target, spelled=spelled), summary)
    pack(db, _in_groups(db, like, training, summary, known))


def _in_groups(
    db: Database,
    job: Job,
    training: names.Table,
    summary: packed.PackedSummary,
    known: Mapping[str, packed.SourceColumn],
) -> Job:
    """Return `job` with its rows assigned to the groups of the training table, if that has groups."""
    if summary.group_by is None:
        return job
    source, found = grouping.as_training(
        db, job.source, known, training=training, group_by=summary.group_by, spelled=job.spelled[1]
    )
    return replace(job, source=source, grouping=found)


def _validation_table(db: Database, spelled: str) -> names.TargetTable:
    return names.target_table(db, names.with_suffix(spelled, VALIDATION), suffixes=(packed.SUMMARY,))


def _like(job: Job, training: packed.PackedSummary) -> Job:
    """Return the job with a training table's settings, such as its divisor, classes, segments and seed."""
    return replace(
        job,
        folds=None,
        grouping=None,
        divisor=training.normalizing_const,
        num_classes=training.num_classes,
        segments=training.segments,
        seed=training.seed,
        shapes={},
        dist_keys=training.dist_keys,
        rules=Rules(None, training.distribution_rules, training.internal_gpu_config),
        class_values=training.class_values,
        class_types=list(training.class_value_types.values()),
        row_shapes=[*training.target_shapes, *training.input_shapes],
        features=training.features,
    )


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
) -> None:
    """Pack a validation table with the divisor, classes, columns, segments and seed of its training table."""
    chosen = option.parse(options, option.VALIDATION)
    source, target = _tables(db, source_table, output_table)
    table = names.resolve_table(db, training_preprocessor_table, "training_preprocessor_table")
    training = packed.summary(db, table.schema, table.name)
    job = job_like(
        db,
        training,
        source=source,
        target=target,
        spelled=(str(source_table), str(output_table)),
        dependents=dependent_varname,
        independents=independent_varname,
        memory=chosen.memory_mb << 20,
    )
    # The rows go where those of the training table are.
    db.server.ignore_rules(distribution_rules)
    job = replace(job, buffer_size=_buffer_size(buffer_size))
    pack(db, _in_groups(db, job, table, training, packed.columns_of(db, source)))


def job_like(
    db: Database,
    training: packed.PackedSummary,
    source: names.Table,
    target: names.TargetTable,
    spelled: tuple[str, str],
    dependents: str | None,
    independents: str | None,
    memory: int,
) -> Job:
    """Return a job that packs the rows of `source` as those of the packed table `training` were packed."""
    known = packed.columns_of(db, source)
    outputs = parse_items(dependents, "dependent_varname", known)
    _same_count("dependent_varname", len(outputs), training.dependent_varname)
    found_outputs = sources.outputs(outputs, known, source.quoted, _tasks_of(training))
    if training.features is not None:
        inputs.check_listed(independents, training.features)
    found_inputs = _independents(independents, known, source, training.features)
    _same_count("independent_varname", len(found_inputs), training.independent_varname)
    _same_types(found_outputs, training)
    job = Job(
        source=source,
        target=target,
        spelled=spelled,
        dependents=found_outputs,
        independents=found_inputs,
        buffer_size=None,
        divisor=training.normalizing_const,
        num_classes=training.num_classes,
        segments=training.segments,
        seed=training.seed,
        memory=memory,
        shapes={},
        weight=_weight(db, source, known, training.weight_varname),
    )
    return _like(job, training)


def _independents(
    listed: str | None,
    known: Mapping[str, sources.SourceColumn],
    source: names.Table,
    found: Specification | None,
) -> Sequence[PackedPart]:
    if found is not None:
        return inputs.parts(found, known, source.quoted)
    return sources.inputs(parse_items(listed, "independent_varname", known), known, source.quoted)


def _check_alone(chosen: option.PackOptions, divisor: float, listed: str | None) -> None:
    """Raise an error for an argument that conflicts with the option `columns`, or is useless without it."""
    if chosen.columns is None:
        needing = {"option exclude": chosen.exclude, "option also_categories": chosen.also_categories}
        needing["independent_varname '*'"] = listed is not None and listed.strip() == inputs.ALL
        for what in (name for name, is_given in needing.items() if is_given):
            raise CerebroError(f"{what} needs the option columns", hint='Write {"columns": "auto"}.')
        return
    if divisor != 1:
        raise CerebroError(
            f"normalizing_const is {divisor:g}, but option columns says how columns are scaled",
            hint='Leave normalizing_const out, or write {"columns": {"pixels": {"divide": 255}}}.',
        )
    if chosen.shape:
        raise CerebroError(
            "option shape does not go with option columns",
            hint='Write {"columns": {"pixels": {"shape": [28, 28, 1]}}}.',
        )


def _weight(
    db: Database, source: names.Table, known: Mapping[str, sources.SourceColumn], name: str | None
) -> sources.SourcePart | None:
    """Return the column of row weights, or None if `name` is None.

    Raise an error if its values are not numbers, or if one is negative.
    """
    if name is None:
        return None
    column = sources.find_column(name, known, source.quoted)
    if column.is_array or column.element not in sources.NUMBERS:
        raise CerebroError(
            f'column "{name}" of type {column.shown_type} cannot be a weight',
            hint="Weights are numbers.",
            sqlstate=DATATYPE_MISMATCH,
        )
    negative = source_rows.first_negative(db, source, column)
    if negative is not None:
        raise CerebroError(f'column "{name}" holds the weight {negative:g}', hint="Weights are 0 or more.")
    return sources.SourcePart(packed.WEIGHT, (column,), sources.VALUES)


def _tables(
    db: Database, source_table: str | None, output_table: str | None
) -> tuple[names.Table, names.TargetTable]:
    source = names.resolve_table(db, source_table, "input table")
    return source, names.target_table(db, output_table, suffixes=(packed.SUMMARY,))


def _tasks(
    items: Sequence[Item],
    known: Mapping[str, sources.SourceColumn],
    widths: Sequence[int | None],
    task: str | None,
) -> list[str | None]:
    """Return the task of each output: `task`, or if it is None, the task that its number of classes implies.

    `widths` has the number of classes of each output, as the caller gives it. An output with such a number
    is classification, unless it is an array.
    """
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


def _same_types(dependents: Sequence[sources.SourcePart], training: packed.PackedSummary) -> None:
    """Raise an error if labels cannot be matched with the class values of the training rows.

    Labels of another type are matched by their text, one-hot rows by their width. Labels cannot be matched
    if the training rows were one-hot, because then there are no class values.
    """
    expected = zip(training.dependent_vartype, training.class_values, training.num_classes, strict=True)
    for part, (kind, values, width) in zip(dependents, expected, strict=True):
        if part.kind == sources.CLASSES and values is None and width is not None:
            raise CerebroError(
                f'dependent column "{part.name}" is {part.shown_type}, in the training table {kind}',
                hint="The training rows had one-hot vectors, without class names: make the same in a view.",
                sqlstate=DATATYPE_MISMATCH,
            )


def _widths(num_classes: Sequence[int | None] | None, outputs: int) -> list[int | None]:
    widths: list[int | None] = [None] * outputs if num_classes is None else list(num_classes)
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


def _usual_segments(db: Database, source: names.Table, among: Rules) -> int:
    """Return the default number of segments, which is at most the number of rows.

    It is the number of segments in `among`, or the server's usual number if `among` allows all.
    """
    if among.contents is not None:
        usual = len(among.contents)
    else:
        usual = usual_segments(db)
    return max(1, min(usual, source_rows.rows_up_to(db, source, usual)))
