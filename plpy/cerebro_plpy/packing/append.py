"""cerebro.append_rows: adds rows to a packed table; the rows that it already has stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import UNDEFINED_COLUMN, WRONG_STATE, CerebroError
from cerebro_plpy.features import drift
from cerebro_plpy.features.specification import DATE, NUMBER
from cerebro_plpy.packing import options as option
from cerebro_plpy.packing.columns import class_counts
from cerebro_plpy.packing.dividing import grouping
from cerebro_plpy.packing.dividing.grouping import Grouping
from cerebro_plpy.packing.job import Job
from cerebro_plpy.packing.pack import gathered, output_of
from cerebro_plpy.packing.preprocess import job_like
from cerebro_plpy.packing.rows import dealing
from cerebro_plpy.packing.rows.dealing_groups import GroupDeal
from cerebro_plpy.packing.rows.read import FEATURES, ONE_HOT, decode_buffer
from cerebro_plpy.store import names, session
from cerebro_plpy.store.packed import append, groups, packed
from cerebro_plpy.store.packed import drift as drifts
from cerebro_plpy.store.packed.append import PackedVersion

# The most columns that a notice names.
MOST_SHOWN = 5


def append_rows(
    db: Database,
    packed_table: str | None,
    source_table: str | None,
    dependent_varname: str | None = None,
    independent_varname: str | None = None,
    options: str | None = None,
) -> int:
    """Pack the rows of a source table into an existing packed table; return the number of its new version."""
    chosen = option.parse(options, option.VALIDATION)
    source = names.resolve_table(db, source_table, "input table")
    table = names.resolve_table(db, packed_table, "packed table")
    names.check_writable(db, "more rows of a packed table")
    training = packed.summary(db, table.schema, table.name)
    _check_takes_rows(table, training)
    beside = groups.of_training(db, table) if training.group_by is not None else None
    append.check_rights(db, table, training.quoted, beside)
    db.server.check_lies_as_packed(table, "packed table")
    append.lock(db, training.quoted)
    # Another call may have added rows before this call had the lock.
    training = packed.summary(db, table.schema, table.name)
    known = packed.columns_of(db, source)
    job = job_like(
        db,
        training,
        source=source,
        target=names.TargetTable(table.schema, table.name, table.quoted),
        spelled=(str(source_table), str(packed_table)),
        dependents=dependent_varname or _own_outputs(training, known, source),
        independents=independent_varname or _own_inputs(training, known, source),
        memory=chosen.memory_mb << 20,
    )
    job = _in_groups(db, replace(job, takes_new_classes=True), table, training, known)
    with gathered(db, job) as found:
        how = _after(found.plan(training.segments, training.buffer_size), job, training)
        # The new table's columns may have other names.
        output = replace(
            output_of(job),
            dependents=training.dependent_varname,
            independents=training.independent_varname,
        )
        classes_seen = found.rows.write(output, found.labels, how)
        added = PackedVersion(how.rows, how.buffers_after, job.spelled[0])
        versions = [*training.versions, added]
        values = [label.values for label in found.labels]
        counts = found.class_counts
    size = max(training.buffer_size, how.buffer_size)
    changed = {**_changed(training, values), **_counted(training, counts)}
    append.write(db, training.quoted, versions, size, changed)
    if isinstance(how, GroupDeal) and job.grouping is not None:
        _describe_groups(db, table, job.grouping, how=how, seen=classes_seen)
    _tell(db, job, table, replace(training, versions=versions))
    return len(versions)


def _in_groups(
    db: Database,
    job: Job,
    table: names.Table,
    training: packed.PackedSummary,
    known: Mapping[str, packed.SourceColumn],
) -> Job:
    """Return `job` with a group for each row; if the packed table has no groups, return `job` unchanged."""
    if training.group_by is None:
        return job
    source, found = grouping.with_added(db, job.source, known, packed=table, group_by=training.group_by)
    return replace(job, source=source, grouping=found)


def _after(
    how: dealing.Deal | GroupDeal, job: Job, training: packed.PackedSummary
) -> dealing.Deal | GroupDeal:
    """Return the plan `how`, continued after the rows and buffers that the packed table already has."""
    buffers = training.versions[-1].below
    if isinstance(how, GroupDeal):
        rows = job.grouping.rows_before if job.grouping else ()
        return replace(how, rows_before=rows, buffers_before=buffers)
    return replace(how, rows_before=training.total_rows, buffers_before=buffers)


def _describe_groups(
    db: Database, table: names.Table, added: Grouping, *, how: GroupDeal, seen: Sequence[int] | None
) -> None:
    """Update the table of groups: the rows, segments, classes and version of each group that got rows."""
    now = packed.summary(db, table.schema, table.name)
    classes: list[int | None] = [None] * len(how.groups) if seen is None else list(seen)
    width = now.num_classes[0] or 0
    old = [
        number
        for number, (new, before) in enumerate(zip(how.groups, added.rows_before, strict=True))
        if new and before and seen is not None and seen[number] < width
    ]
    if old:
        # The earlier and the added rows of a group may have different classes.
        counted = class_counts.of_groups(db, table, now)
        for number in old:
            of_first = counted[number + 1][now.dependent_varname[0]] or ()
            classes[number] = sum(1 for count in of_first if count)
    groups.describe(
        db, added.table, how.groups, segments=how.segments_of_groups, classes=classes, version=now.version
    )


def _check_takes_rows(table: names.Table, training: packed.PackedSummary) -> None:
    if training.stored is not None:
        raise CerebroError(
            f"{table.quoted} holds features of {training.stored.source_table}",
            hint=f"Add the rows to that table, then: SELECT cerebro.refresh_features('{table.quoted}').",
            sqlstate=WRONG_STATE,
        )
    if training.folds is not None:
        raise CerebroError(
            f"{table.quoted} was packed in folds: no rows can be added",
            hint="Pack all rows again.",
            sqlstate=WRONG_STATE,
        )
    if not training.versions:
        raise CerebroError(
            f"{table.quoted} does not record when its rows were packed",
            detail="An earlier release packed it, or another database.",
            hint="Pack the table again.",
            sqlstate=WRONG_STATE,
        )


def _own_inputs(
    training: packed.PackedSummary, known: Mapping[str, packed.SourceColumn], source: names.Table
) -> str:
    if training.features is not None:
        return "*"
    return _own_names(training.independent_varname, known, "independent_varname", source)


def _own_outputs(
    training: packed.PackedSummary, known: Mapping[str, packed.SourceColumn], source: names.Table
) -> str:
    return _own_names(training.dependent_varname, known, "dependent_varname", source)


def _own_names(
    own: Sequence[str], known: Mapping[str, packed.SourceColumn], parameter: str, source: names.Table
) -> str:
    missing = [name for name in own if name not in known]
    if missing:
        raise CerebroError(
            f'{source.quoted} has no column "{missing[0]}"',
            hint=f"Name in {parameter} the columns that it is made of, as when the table was packed.",
            sqlstate=UNDEFINED_COLUMN,
        )
    return ", ".join(map(names.quote, own))


def _changed(
    training: packed.PackedSummary, values: Sequence[list[str | None] | None]
) -> Mapping[str, tuple[str, Sequence[str | None]]]:
    """Return the summary's columns of class values that change, each with its type and its new values."""
    found = zip(training.class_value_types.items(), training.class_values, values, strict=True)
    return {column: (kind, now) for (column, kind), before, now in found if now is not None and now != before}


def _counted(
    training: packed.PackedSummary, counts: Sequence[Sequence[int] | None]
) -> Mapping[str, tuple[str, Sequence[str]]]:
    """Return the summary's columns of class counts, each with its type and the sums of old and new counts."""
    found = zip(training.dependent_varname, training.class_counts, counts, strict=True)
    return {
        name + packed.CLASS_COUNTS: ("bigint[]", [str(a + b) for a, b in zip(before, now, strict=True)])
        for name, before, now in found
        if before is not None and now is not None
    }


def _tell(db: Database, job: Job, table: names.Table, summary: packed.PackedSummary) -> None:
    """Store how the distribution of each column differs between the added and the earlier rows.

    Send a notice of the number of added rows, and one that names the columns that differ most.
    """
    shifts = _shifts(db, job, table, summary)
    added = summary.versions[-1]
    role = session.current_user(db)
    rows = []
    for shift in shifts:
        values = asdict(shift)
        del values["noise"]
        column = values.pop("column")
        rows.append(
            drifts.DriftRow(
                packed=table.oid,
                owner=role,
                version=summary.version,
                rows=added.rows,
                column_name=column,
                **values,
            )
        )
    if rows:
        drifts.keep(db, rows)
    db.notice(f"{added.rows} rows added to {table.quoted}, which is now of version {summary.version}")
    large = sorted((s for s in shifts if s.is_large), key=lambda s: s.stability or 0, reverse=True)
    if large:
        shown = ", ".join(f'"{s.column}" ({s.stability:.2f})' for s in large[:MOST_SHOWN])
        db.notice(
            "these columns are distributed differently than in the earlier rows (population stability index):"
            f" {shown}; see cerebro.drift"
        )


def _shifts(db: Database, job: Job, table: names.Table, summary: packed.PackedSummary) -> list[drift.Shift]:
    first, below = (version.below for version in summary.versions[-2:])
    columns = [*summary.independent_varname, *summary.dependent_varname]
    kinds = [FEATURES] * len(summary.independent_varname)
    kinds += [ONE_HOT if one_hot else FEATURES for one_hot in summary.one_hot]
    samples = []
    for bounds in ((0, first), (first, below)):
        buffers = drifts.sample(db, table, columns, *bounds)
        if not buffers:
            # A row-level security policy of the packed table hides the buffers.
            return []
        samples.append(
            {
                name: np.concatenate([decode_buffer(b[name], b[name + packed.SHAPE], kind) for b in buffers])
                for name, kind in zip(columns, kinds, strict=True)
            }
        )
    return [*_of_inputs(db, job, summary, *samples), *_of_labels(summary, *samples)]


Sample = Mapping[str, np.ndarray]


def _of_inputs(
    db: Database, job: Job, summary: packed.PackedSummary, before: Sample, after: Sample
) -> list[drift.Shift]:
    found = summary.features
    if found is None:
        divisor = summary.normalizing_const
        return [drift.of_values(n, before[n], after[n], divisor) for n in summary.independent_varname]
    known = packed.columns_of(db, job.source)
    columns = [known[name] for name in found.columns]
    numbers = [feature.way.kind in (NUMBER, DATE) for feature in found.columns.values()]
    rows, counted = drifts.count(db, job.source, columns, numbers)
    counts = {
        column.name: drift.Counts(rows, present, mean)
        for column, (present, mean) in zip(columns, counted, strict=True)
    }
    shifts = []
    for one in found.inputs:
        own = [drift.samples_of(one, sample[one.name]) for sample in (before, after)]
        shifts += [
            drift.of_feature(f, found.rows, counts[f.name], *(each[f.name] for each in own))
            for f in filter(found.leads, one.features)
        ]
    return shifts


def _of_labels(summary: packed.PackedSummary, before: Sample, after: Sample) -> list[drift.Shift]:
    return [
        drift.of_classes(name, before[name], after[name])
        if one_hot
        else drift.of_values(name, before[name], after[name])
        for name, one_hot in zip(summary.dependent_varname, summary.one_hot, strict=True)
    ]
