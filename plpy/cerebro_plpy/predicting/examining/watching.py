"""cerebro.check: compares rows with a model's training rows, and how well the model answers both."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.features import drift, encode, verdicts
from cerebro_plpy.features.profile import Profile
from cerebro_plpy.features.specification import Feature, Number
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.predicting.examining import profiles, scoring
from cerebro_plpy.predicting.examining.kept_answers import KeptAnswers, measure_rows
from cerebro_plpy.predicting.examining.labeled import Judge, SomeRows, find_judge
from cerebro_plpy.predicting.examining.parts_of_rows import RunningSums
from cerebro_plpy.predicting.holders import RegisteredVersion
from cerebro_plpy.store.models import health
from cerebro_plpy.store.models.model_versions import MANAGE
from cerebro_plpy.store.names import Table, is_read_only
from cerebro_plpy.store.packed import drift as samples
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.related import relations

# The beginning of a query, by which it is told from the name of a table.
_QUERY = re.compile(r"\s*(\(|(select|with|values|table)[\s(])", re.IGNORECASE)
# The name of the table that holds a query's rows during a check, and the most characters kept of its text.
_CHECKED, _LONGEST = "cerebro_checked", 200
# The share of a column's scale by which 32-bit floats may be off.
_CLOSE = 1e-5
# Errors of classes below this are as good as none; those of quantities have no such size.
_LEAST_ERROR, _NO_ERROR = 0.01, 1e-12


class CheckLine(NamedTuple):
    """One finding of a check: on a column, or on all rows if `column` is None."""

    column: str | None
    measure: str
    value: float | None
    before: float | None
    threshold: float
    verdict: str


@dataclass
class SeenRows:
    """The counts and sums over the rows that a check has read."""

    judge: Judge
    profile: Profile | None
    metrics: Sequence[str]
    rows: int = 0
    counts: dict[str, np.ndarray] = field(default_factory=dict)
    unseen: dict[str, float] = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)
    # Rows of groups without a model of their own.
    strange: int = 0
    # Rows with a label that the model cannot answer.
    new_classes: int = 0
    answers: np.ndarray | None = None
    errors: RunningSums | None = None
    kept: KeptAnswers = field(default_factory=KeptAnswers)

    def add(self, read: SomeRows) -> None:
        self.rows += len(read.labels)
        for name, feature, values in _samples(self.judge, read.inputs):
            self._add_column(name, feature, values)
        self.strange += self.judge.nets.count_strange(read.groups)
        rows = self.judge.choose_answered(read)
        if not rows.labels:
            return
        answers = self.judge.answer(rows.inputs, rows.groups)
        if self.profile is not None and self.profile.answers is not None:
            found = self.profile.answers.count(profiles.answer_values(self.judge.output, answers))
            self.answers = found if self.answers is None else self.answers + found
        # A label that is NULL may not be known yet.
        due = [place for place, label in enumerate(rows.labels) if label is not None]
        if due:
            errors = self.judge.measure(self.metrics, [rows.labels[place] for place in due], answers[due])
            if self.errors is None:
                self.errors = RunningSums(0, np.zeros(len(errors)), np.zeros(len(errors)))
            self.errors.add(np.stack(errors))
        known = [place for place in due if self.judge.knows(rows.labels[place])]
        self.new_classes += len(due) - len(known)
        if known:
            self.kept.add(answers[known], self.judge.truth([rows.labels[place] for place in known]))

    def _add_column(self, name: str, feature: Feature | None, values: np.ndarray) -> None:
        before = None if self.profile is None else self.profile.columns.get(name)
        if before is not None:
            found = before.count(values.ravel() if feature is None else drift.values_of(feature, values))
            self.counts[name] = self.counts.get(name, np.zeros_like(found)) + found
        if feature is None:
            return
        share = drift.find_unseen(feature, values, None)
        if share is not None:
            self.unseen[name] = self.unseen.get(name, 0.0) + share * len(values)
        ends = _ends(feature)
        if ends is not None:
            out = (values[:, 0] < ends[0]) | (values[:, 0] > ends[1])
            self.outside[name] = self.outside.get(name, 0) + int(out.sum())


def _samples(judge: Judge, inputs: Sequence[np.ndarray]) -> Iterator[tuple[str, Feature | None, np.ndarray]]:
    known = judge.model.features
    if known is None:
        for column, values in zip(judge.columns, inputs, strict=True):
            yield column.part.name, None, values
        return
    for one, values in zip(known.inputs, inputs, strict=True):
        own = drift.samples_of(one, values)
        for feature in filter(known.leads, one.features):
            yield feature.name, feature, own[feature.name]


def _ends(feature: Feature) -> tuple[float, float] | None:
    """Return the smallest and the largest value of a numeric feature in the training rows; None if unknown.

    They are scaled like the feature, and moved apart by the rounding errors of 32-bit floats.
    """
    ends = [feature.statistics.get(key) for key in ("minimum", "maximum")]
    way = feature.way
    if not isinstance(way, Number) or None in ends:
        return None
    low, high = encode.scale(way, np.array(ends, np.float64)).tolist()
    room = _CLOSE * max(1.0, abs(low), abs(high))
    return low - room, high + room


def check(
    db: Database, model: str | None, source: str | None, mst_key: int | None, thresholds: str | None
) -> list[CheckLine]:
    """Return the findings of a check on columns, answers and metrics. `source` is a table, a view or a query.

    If the caller may manage the registered model, the findings are also stored.
    """
    if source is None or not _QUERY.match(source):
        return _check(db, model, source, mst_key, thresholds)
    with relations.rows_of_query(db, source, _CHECKED) as rows:
        # `quoted` is the name in messages; `selection` is the real name, by which the rows are read.
        called = replace(rows, quoted="the query", selection=rows.quoted)
        return _check(db, model, called, mst_key, thresholds, query=shorten(source, _LONGEST))


def _check(
    db: Database,
    model: str | None,
    source: str | Table | None,
    mst_key: int | None,
    thresholds: str | None,
    query: str | None = None,
) -> list[CheckLine]:
    judge = find_judge(db, model, source, mst_key, needs_label=False, takes_groups=True)
    names = [*judge.find_places(), *([] if judge.grouped_by is None else [judge.grouped_by])]
    places = {name: place for place, name in enumerate(names)}
    limits = verdicts.read_limits(thresholds, places)
    holder = judge.holder
    profile = profiles.find_profile(db, judge.found)
    if profile is None:
        db.notice(
            f"distributions are not compared: the training rows of {holder.name} are gone, hidden from you,"
            " or stored as outputs of a net"
        )
    metrics = scoring.of_rows(judge.is_classes)
    seen = SeenRows(judge, profile, metrics)
    for rows in judge.read_all():
        seen.add(rows)
    if seen.new_classes:
        db.notice(
            f"{holder.name} does not know the class of {seen.new_classes} of {seen.rows} rows: they count as"
            " wrong answers"
        )
    of_columns = sorted(
        [*_of_columns(seen, limits), *_of_groups(seen, limits)], key=lambda line: places[line.column or ""]
    )
    lines = [*of_columns, *_of_answers(seen, limits), *_of_metrics(seen, limits)]
    if isinstance(holder, RegisteredVersion) and holder.found.privilege == MANAGE:
        if is_read_only(db):
            db.notice("the transaction only reads: cerebro.model_health does not get these findings")
            return lines
        kept = [{**line._asdict(), "value": _finite(line.value)} for line in lines]
        worst = max((line.verdict for line in lines), key=verdicts.ORDER.index, default=verdicts.OK)
        shown = query or judge.table.quoted
        health.keep(db, holder.found.version_id, source=shown, rows=seen.rows, verdict=worst, lines=kept)
    return lines


def _finite(value: float | None) -> float | None:
    """Return a number as JSON can have it: None instead of NaN and infinity."""
    return value if value is not None and math.isfinite(value) else None


def _of_columns(seen: SeenRows, limits: verdicts.Thresholds) -> Iterator[CheckLine]:
    profile, known = seen.profile, seen.judge.model.features
    for name, found in seen.counts.items():
        before = np.array(profile.columns[name].counts if profile else [])
        yield _compare(limits, before, found, column=name, measure=verdicts.STABILITY)
    if known is None:
        return
    nulls = _count_nulls(seen.judge, list(known.columns.values()))
    shares = {} if profile is None else profile.unseen
    for feature in known.columns.values():
        name, before_nulls = feature.name, drift.null_share(feature, known.rows)
        found = [(verdicts.NULLS, nulls[name], before_nulls)]
        if name in seen.unseen:
            share = drift.without_nulls(feature, seen.unseen[name] / seen.rows, nulls[name])
            found.append((verdicts.UNSEEN, share, shares.get(name, 0.0)))
        if name in seen.outside:
            found.append((verdicts.OUTSIDE, seen.outside[name] / seen.rows, 0.0))
        for measure, now, then in found:
            if then is not None:
                excess = verdicts.share_beyond(now, then, seen.rows, known.rows)
                yield _judge(limits, name, measure, value=now, before=then, excess=excess)


def _of_groups(seen: SeenRows, limits: verdicts.Thresholds) -> Iterator[CheckLine]:
    """Yield the finding on the share of rows whose group has no model of its own."""
    name, profile = seen.judge.grouped_by, seen.profile
    if name is None:
        return
    now, then = seen.strange / seen.rows, 0.0 if profile is None else profile.unseen.get(name, 0.0)
    excess = verdicts.share_beyond(now, then, seen.rows, seen.rows if profile is None else profile.rows)
    yield _judge(limits, name, verdicts.UNSEEN, value=now, before=then, excess=excess)


def _count_nulls(judge: Judge, features: Sequence[Feature]) -> Mapping[str, float]:
    known = packed.columns_of(judge.db, judge.table)
    columns = [known[feature.name] for feature in features]
    rows, counted = samples.count(judge.db, judge.table, columns, [False] * len(columns))
    return {
        column.name: 1 - present / max(1, rows) for column, (present, _) in zip(columns, counted, strict=True)
    }


def _of_answers(seen: SeenRows, limits: verdicts.Thresholds) -> Iterator[CheckLine]:
    if seen.answers is not None and seen.profile is not None and seen.profile.answers is not None:
        before = np.array(seen.profile.answers.counts)
        yield _compare(limits, before, seen.answers, column=None, measure=verdicts.PREDICTIONS)


def _of_metrics(seen: SeenRows, limits: verdicts.Thresholds) -> Iterator[CheckLine]:
    known = {} if seen.profile is None else seen.profile.metrics
    for metric, error, low in _errors(seen):
        before = known.get(metric)
        excess = None
        if before is not None:
            least = _LEAST_ERROR if seen.judge.is_classes else _NO_ERROR
            excess = verdicts.error_beyond(low, scoring.shown(metric, before), least)
        line = _judge(limits, None, verdicts.METRIC, value=error, before=before, excess=excess)
        yield line._replace(measure=metric, value=scoring.shown(metric, error))


def _errors(seen: SeenRows) -> Iterator[tuple[str, float, float]]:
    """Yield the name of each metric, the error by it, and the lower bound of that error."""
    if seen.errors is None:
        return
    for place, metric in enumerate(seen.metrics):
        error, low, _ = (scoring.error_of(metric, one) for one in seen.errors.bounds(place, metric))
        yield metric, error, low
    if seen.kept.is_empty:
        return
    width, rows = scoring.find_width(scoring.CHANCE), seen.kept.all_rows()
    for metric in scoring.of_all_rows(seen.judge.is_classes):
        found = measure_rows(rows, metric)
        if found is not None:
            yield metric, found.error, found.error - width * found.deviation


def _compare(
    limits: verdicts.Thresholds, before: np.ndarray, found: np.ndarray, *, column: str | None, measure: str
) -> CheckLine:
    index, noise = drift.compare_counts(before, found)
    excess = verdicts.index_beyond(index, noise)
    return _judge(limits, column, measure, value=index, before=None, excess=excess)


def _judge(
    limits: verdicts.Thresholds,
    column: str | None,
    measure: str,
    *,
    value: float | None,
    before: float | None,
    excess: float | None,
) -> CheckLine:
    return CheckLine(
        column=column,
        measure=measure,
        value=value,
        before=before,
        threshold=limits.find(measure, column),
        verdict=limits.judge(measure, column, excess),
    )
