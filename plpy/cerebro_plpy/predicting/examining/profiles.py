"""Profiles of trained models: how their training rows and their answers are distributed.

The profile of a result table is computed from packed rows. A registered version stores its profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from cerebro_plpy import seeding
from cerebro_plpy.database import Database, Row
from cerebro_plpy.engine.plain.forward import plain_net
from cerebro_plpy.errors import (
    DATA_CORRUPTED,
    INSUFFICIENT_PRIVILEGE,
    NOT_SUPPORTED,
    UNDEFINED_COLUMN,
    UNDEFINED_TABLE,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.features import drift, profile
from cerebro_plpy.features.profile import Distribution, Profile
from cerebro_plpy.packing.rows.read import FEATURES, ONE_HOT, decode_buffer
from cerebro_plpy.predicting import belonging, choices, models
from cerebro_plpy.predicting.answering import grouped
from cerebro_plpy.predicting.answering.net import answer_packed
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.group_holders import TableOfGroups, VersionOfGroups
from cerebro_plpy.predicting.holders import ModelHolder, RegisteredVersion, TrainedModel
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.store import interrupts, user_code
from cerebro_plpy.store.models.models import strange_views
from cerebro_plpy.store.names import Table, find_table, quote, resolve_table
from cerebro_plpy.store.packed import drift as samples
from cerebro_plpy.store.packed import groups as groups_beside
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.groups import Groups
from cerebro_plpy.store.runs import results

# More answers, and more numbers of one column, would change nothing.
ENOUGH_ROWS, ENOUGH_NUMBERS = 20_000, 1_000_000
_ALL = 2**31 - 1
# Errors for a table that is gone, has been replaced, or may not be read by the caller.
_NOT_THERE = (
    UNDEFINED_TABLE,
    UNDEFINED_COLUMN,
    INSUFFICIENT_PRIVILEGE,
    WRONG_STATE,
    DATA_CORRUPTED,
    NOT_SUPPORTED,
)


@dataclass(frozen=True)
class PackedSample:
    """Some rows of a packed table: the summary of the table, the inputs and the only label of the rows."""

    summary: packed.PackedSummary
    inputs: list[np.ndarray]
    truth: np.ndarray
    # The key of each row's group, where they were packed in groups.
    groups: list[str | None] = field(default_factory=list)

    def choose(self, places: np.ndarray) -> PackedSample:
        """Return the rows at the given places."""
        groups = [self.groups[place] for place in places] if self.groups else []
        return PackedSample(self.summary, [one[places] for one in self.inputs], self.truth[places], groups)


def find_profile(db: Database, found: TrainedModel | TableOfGroups | VersionOfGroups) -> Profile | None:
    """Return the profile of a model's training rows; None if they are gone or the caller may not read them.

    None as well if they are outputs of a net: these show no distribution of a column. Models of groups have
    one profile, of the rows of all groups.
    """
    if isinstance(found.holder, RegisteredVersion):
        return found.holder.profile(db)
    summary = found.holder.summary(db)
    rows = {what: _sample(db, found.holder, results.named_table(summary, f"{what}_table")) for what in WAYS}
    training = rows["source"]
    if training is None:
        return None
    measured, judged = WAYS["validation"], rows["validation"]
    if judged is None:
        measured, judged = WAYS["source"], training
    unseen = dict(_unseen(training))
    judged = judged.choose(np.arange(min(len(judged.truth), ENOUGH_ROWS)))
    if isinstance(found, TrainedModel):
        answered = _answer(db, models.trained(db, found), judged.inputs)
    else:
        nets = grouped.Answers(db, found)
        has_own = np.array([nets.find_own(key) is not None for key in training.groups])
        unseen[found.models.shown_columns] = float(1 - has_own.mean())
        judged = judged.choose(np.flatnonzero([nets.has_model(key) for key in judged.groups]))
        answered = _answer_groups(db, nets, judged) if judged.groups else None
    known = Profile(training.summary.total_rows, dict(_columns(training)), unseen)
    if answered is None:
        return known
    output, answers = answered
    known = replace(known, answers=describe_answers(output, answers))
    # An ensemble of folds was trained on the held-out rows as well. Its metric is that of models that had not
    # seen the rows.
    if summary.get(results.FOLDS[0]) is not None:
        (metric,), value = summary["metrics_type"], summary["validation_metrics_final"]
        is_known = metric in scoring.of_task(output.values is not None) and value is not None
        return replace(known, measured=WAYS["validation"], metrics={metric: value} if is_known else {})
    truth = judged.truth.astype(np.float64)
    metrics = [
        metric
        for metric in scoring.of_task(output.values is not None)
        if scoring.can_measure(metric, truth.sum(axis=0))
    ]
    return replace(
        known,
        measured=measured,
        metrics={
            metric: scoring.shown(metric, scoring.ERRORS[metric](answers, truth))
            for metric in metrics
            if answers.shape == truth.shape
        },
    )


# The kinds of rows, by the prefix of the summary's column that names their table (`source_table`).
WAYS = {"source": "training", "validation": "validation"}


def _sample(db: Database, holder: ModelHolder, name: str | None) -> PackedSample | None:
    """Return some rows of a packed table that a model table names.

    Return None if the caller cannot read the table, or if it is no longer the table that the model came from.
    """
    try:
        table = None if name is None else find_table(db, name)
        if table is None:
            return None
        beside = resolve_table(db, quote(table.schema, table.name + packed.SUMMARY))
        if strange_views(db, [table, beside]):
            return None
        summary = packed.summary(db, table.schema, table.name)
        belonging.check(db, holder, summary, table.quoted)
        columns = [*summary.independent_varname, *summary.dependent_varname]
        groups = None if summary.group_by is None else _groups_of(db, table, summary.group_by)
        buffers = samples.sample(db, table, columns, 0, summary.below or _ALL, in_groups=groups is not None)
    except CerebroError as error:
        if error.sqlstate not in _NOT_THERE:
            raise
        return None
    if not buffers or len(summary.dependent_varname) != 1 or summary.stored is not None:
        return None
    kinds = [FEATURES] * len(summary.independent_varname) + [ONE_HOT if summary.one_hot[0] else FEATURES]
    *inputs, labels = [
        np.concatenate([decode_buffer(one[column], one[column + packed.SHAPE], kind) for one in buffers])
        for column, kind in zip(columns, kinds, strict=True)
    ]
    truth = labels.reshape(len(labels), -1)
    if groups is None:
        return PackedSample(summary, inputs, truth)
    keys = _keys(groups, buffers, len(truth))
    if keys is None:
        return None
    # The rows of each group lie together, so a sample is drawn at random.
    mixed = seeding.permutation(len(keys), summary.seed, "profile")[: samples.SAMPLE_ROWS]
    return PackedSample(summary, inputs, truth, keys).choose(mixed)


def _keys(groups: Groups, buffers: Sequence[Row], total: int) -> list[str | None] | None:
    """Return the key of each row's group; None if the buffers do not name the group of every row."""
    try:
        stretches = [(number, rows) for one in buffers for number, rows in one[packed.GROUPS]]
    except (TypeError, ValueError):
        return None
    is_whole = all(number in groups.rows and rows > 0 for number, rows in stretches)
    if not is_whole or sum(rows for _, rows in stretches) != total:
        return None
    return [groups.rows[number].key for number, rows in stretches for _ in range(rows)]


def _groups_of(db: Database, table: Table, columns: Sequence[str]) -> Groups:
    """Return the groups of a packed table.

    Raise an error if reading their keys would run somebody else's code.
    """
    beside = resolve_table(db, quote(table.schema, table.name + groups_beside.SUFFIX))
    if strange_views(db, [beside]) or user_code.find_casts(db, beside, columns):
        raise CerebroError(f"the groups of {table.quoted} cannot be read", sqlstate=WRONG_STATE)
    return groups_beside.read_groups(db, table, columns)


def _columns(rows: PackedSample) -> Iterator[tuple[str, Distribution]]:
    known = rows.summary.features
    if known is None:
        for name, values in zip(rows.summary.independent_varname, rows.inputs, strict=True):
            yield name, profile.describe(values.ravel()[:ENOUGH_NUMBERS], is_coded=False)
        return
    for one, values in zip(known.inputs, rows.inputs, strict=True):
        own = drift.samples_of(one, values)
        for feature in filter(known.leads, one.features):
            most = max(1, ENOUGH_NUMBERS // feature.width)
            yield feature.name, drift.describe(feature, own[feature.name][:most])


def _unseen(rows: PackedSample) -> Iterator[tuple[str, float]]:
    known = rows.summary.features
    if known is None:
        return
    for one, values in zip(known.inputs, rows.inputs, strict=True):
        own = drift.samples_of(one, values)
        for feature in filter(known.leads, one.features):
            nulls = drift.null_share(feature, known.rows)
            share = drift.find_unseen(feature, own[feature.name], nulls)
            if share is not None:
                yield feature.name, share


def _answer(
    db: Database, model: models.Model, inputs: Sequence[np.ndarray]
) -> tuple[Output, np.ndarray] | None:
    """Return the meaning of a model's only output, and the model's answers for the inputs.

    Return None if an engine would have to start.
    """
    output = _find_output(db, model, _shapes(inputs))
    if output is None:
        return None
    (found,) = answer_packed(db, model, inputs)
    return output, output.read(found)


def _answer_groups(
    db: Database, nets: grouped.Answers, rows: PackedSample
) -> tuple[Output, np.ndarray] | None:
    """Return the meaning of the output that all groups' models have, and the models' answers for the rows.

    Return None if an engine would have to start.
    """
    nets.shapes = _shapes(rows.inputs)
    each: dict[int, Sequence[Output]] = {}
    for key, model in nets.models.items():
        output = _find_output(db, model, nets.shapes)
        if output is None:
            return None
        each[key] = [output]
    (shared,) = nets.share(each)
    answers, _ = nets.answer_rows(rows.inputs, rows.groups, shared.width, partial(interrupts.tick, db))
    return shared, shared.read(answers)


def _shapes(inputs: Sequence[np.ndarray]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(values.shape[1:]) for values in inputs)


def _find_output(db: Database, model: models.Model, shapes: tuple[tuple[int, ...], ...]) -> Output | None:
    """Return the meaning of a net's only output.

    Return None if the net has several outputs, or if an engine would have to start.
    """
    plain = plain_net(model.model_arch, model.weights(), shapes)
    if plain is not None and plain.is_light:
        described = plain.described
    elif models.runs_engine():
        models.take_functions(db, model)
        described = models.described(model, shapes)
    else:
        return None
    outputs = model.outputs(described)
    if len(outputs) != 1 or (outputs[0].values is None and outputs[0].width > 1):
        return None
    return outputs[0]


def describe_answers(output: Output, answers: np.ndarray) -> Distribution:
    """Return the distribution of the answers."""
    return profile.describe(answer_values(output, answers), is_coded=_is_coded(output))


def answer_values(output: Output, answers: np.ndarray) -> np.ndarray:
    """Return one number for each answer, so that answers have a distribution to compare.

    It is the quantity, the probability of the second class of two, or the place of the most probable class.
    """
    if _is_coded(output):
        return choices.find_likeliest(answers)
    return answers[:, -1]


def _is_coded(output: Output) -> bool:
    return output.values is not None and len(output.values) > 2
