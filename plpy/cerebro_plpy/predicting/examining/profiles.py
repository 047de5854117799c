"""Profiles of trained models: of a result table, from its packed rows; of a version, as it was registered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.engine.plain.forward import plain_net
from cerebro_plpy.errors import (
    DATA_CORRUPTED,
    INSUFFICIENT_PRIVILEGE,
    UNDEFINED_COLUMN,
    UNDEFINED_TABLE,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.features import drift, profile
from cerebro_plpy.features.profile import Distribution, Profile
from cerebro_plpy.packing.rows.read import FEATURES, ONE_HOT, decode_buffer
from cerebro_plpy.predicting import belonging, models
from cerebro_plpy.predicting.answering import of_packed
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.holders import RegisteredVersion, TrainedModel
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.store import interrupts
from cerebro_plpy.store.models.models import strange_views
from cerebro_plpy.store.names import find_table, quote, resolve_table
from cerebro_plpy.store.packed import drift as samples
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.runs import results

# More answers, and more numbers of one column, would change nothing.
ENOUGH_ROWS, ENOUGH_NUMBERS = 20_000, 1_000_000
_ALL = 2**31 - 1
# A table that is no more, is another one's by now or is not the caller's to read.
_NOT_THERE = (UNDEFINED_TABLE, UNDEFINED_COLUMN, INSUFFICIENT_PRIVILEGE, WRONG_STATE, DATA_CORRUPTED)


@dataclass(frozen=True)
class PackedSample:
    """Some rows of a packed table: what is known of it, its inputs, and its only label."""

    summary: packed.PackedSummary
    inputs: list[np.ndarray]
    truth: np.ndarray


def find_profile(db: Database, found: TrainedModel) -> Profile | None:
    """Return the profile of a model's training rows; None where nobody, or not the caller, may read them."""
    if isinstance(found.holder, RegisteredVersion):
        return found.holder.profile(db)
    summary = found.holder.summary(db)
    rows = {what: _sample(db, found, results.named_table(summary, f"{what}_table")) for what in WAYS}
    training = rows["source"]
    if training is None:
        return None
    measured, judged = WAYS["validation"], rows["validation"]
    if judged is None:
        measured, judged = WAYS["source"], training
    answered = _answer(db, models.trained(db, found), judged.inputs)
    columns = dict(_columns(training))
    unseen = dict(_unseen(training))
    if answered is None:
        return Profile(training.summary.total_rows, columns, unseen)
    output, answers = answered
    metrics = scoring.of_rows(output.values is not None)
    return Profile(
        rows=training.summary.total_rows,
        columns=columns,
        unseen=unseen,
        answers=describe_answers(output, answers),
        measured=measured,
        metrics={
            metric: scoring.shown(metric, scoring.ERRORS[metric](answers, judged.truth))
            for metric in metrics
            if answers.shape == judged.truth.shape
        },
    )


# The rows that a model comes from, by their column in its summary.
WAYS = {"source": "training", "validation": "validation"}


def _sample(db: Database, found: TrainedModel, name: str | None) -> PackedSample | None:
    """Return some rows of a packed table that a model table names, if they are what they were."""
    try:
        table = None if name is None else find_table(db, name)
        if table is None:
            return None
        beside = resolve_table(db, quote(table.schema, table.name + packed.SUMMARY))
        if strange_views(db, [table, beside]):
            return None
        summary = packed.summary(db, table.schema, table.name)
        belonging.check(db, found.holder, summary, table.quoted)
        columns = [*summary.independent_varname, *summary.dependent_varname]
        buffers = samples.sample(db, table, columns, 0, summary.below or _ALL)
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
    return PackedSample(summary, inputs, labels.reshape(len(labels), -1)[:ENOUGH_ROWS].astype(np.float64))


def _columns(rows: PackedSample) -> Iterator[tuple[str, Distribution]]:
    known = rows.summary.features
    if known is None:
        for name, values in zip(rows.summary.independent_varname, rows.inputs, strict=True):
            yield name, profile.describe(values.ravel()[:ENOUGH_NUMBERS], is_coded=False)
        return
    for one, values in zip(known.inputs, rows.inputs, strict=True):
        own = drift.samples_of(one, values)
        for feature in one.features:
            most = max(1, ENOUGH_NUMBERS // feature.width)
            yield feature.name, drift.describe(feature, own[feature.name][:most])


def _unseen(rows: PackedSample) -> Iterator[tuple[str, float]]:
    known = rows.summary.features
    for one, values in zip(known.inputs if known else [], rows.inputs, strict=False):
        own = drift.samples_of(one, values)
        for feature in one.features:
            nulls = drift.null_share(feature, known.rows if known else 0)
            share = drift.find_unseen(feature, own[feature.name], nulls)
            if share is not None:
                yield feature.name, share


def _answer(
    db: Database, model: models.Model, inputs: Sequence[np.ndarray]
) -> tuple[Output, np.ndarray] | None:
    """Return what a model answers; None where an engine would have to come up for it."""
    few = [values[:ENOUGH_ROWS] for values in inputs]
    shapes = tuple(tuple(values.shape[1:]) for values in few)
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
    (found,) = of_packed.answers(db, model, few, partial(interrupts.tick, db))
    return outputs[0], outputs[0].read(found)


def describe_answers(output: Output, answers: np.ndarray) -> Distribution:
    """Describe how answers are distributed."""
    return profile.describe(answer_values(output, answers), is_coded=_is_coded(output))


def answer_values(output: Output, answers: np.ndarray) -> np.ndarray:
    """Return what answers are compared by: the quantity, the second class's probability, or the class."""
    if _is_coded(output):
        return answers.argmax(axis=1)
    return answers[:, -1]


def _is_coded(output: Output) -> bool:
    return output.values is not None and len(output.values) > 2
