"""Opens a contest: the models of a table, and what they answer for rows that choose among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.executor.ensembles import comparing
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.predicting import belonging, models, selection, trained
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.holders import TrainedModel
from cerebro_plpy.store import interrupts, names
from cerebro_plpy.store.models import by_fold
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.runs import results


@dataclass(frozen=True)
class CandidatePart:
    """A model of the table; of a config's models by fold, also the fold that it has not seen."""

    found: TrainedModel
    model: models.Model
    fold: int | None = None


@dataclass(frozen=True)
class Candidate:
    """A config with its model, or its models by fold, and its answers for the rows that choose."""

    key: int
    parts: Sequence[CandidatePart]
    answers: np.ndarray

    @property
    def name(self) -> str:
        return f"mst_key {self.key}"


@dataclass(frozen=True)
class Contest:
    """Models of a table, the rows that choose among them, and the metric by which they do."""

    best: TrainedModel
    # The row that describes the models of the table.
    about: Mapping[str, Any]
    summary: packed.PackedSummary
    # The packed table that chooses.
    rows: Table
    judging: comparing.JudgingRows
    candidates: Sequence[Candidate]
    metric: str
    # Whether somebody named the metric.
    is_asked: bool
    # Lets the server act on a cancel.
    tick: Callable[[], None]

    @cached_property
    def answers(self) -> np.ndarray:
        return np.stack([one.answers for one in self.candidates])

    def answer_apart(self, size: int) -> selection.AnswersApart:
        """Return the answer for each row by the models that the other rows choose in `size` rounds."""
        judging = self.judging
        return selection.choose_apart(
            self.answers,
            judging.truth,
            is_classes=judging.is_classes,
            metric=self.metric,
            size=size,
            tick=self.tick,
        )


def open_contest(
    db: Database, model_table: str | None, packed_table: str | None, asked: str | None
) -> Contest:
    """Have each model of a table answer the rows of a packed table, by default those that validated them."""
    best = trained.find_model(db, model_table, None)
    if best.mst_key is None:
        raise CerebroError(
            f"{best.holder.name} holds a single model",
            hint="Name a table of madlib_fit_multiple_model, of a search or of cerebro.train.",
            sqlstate=WRONG_STATE,
        )
    about = best.holder.summary(db)
    rows = _choosing_rows(db, packed_table, best, about)
    judging = comparing.read_rows(db, rows)
    if _has_trained(db, rows, about):
        judging = comparing.with_folds(db, rows, judging)
    metric = scoring.check_metric(asked, judging.is_classes)
    scoring.check_rows(metric, judging.truth.sum(axis=0), rows.table.quoted)
    candidates = list(_candidates(db, best, judging))
    for one in candidates:
        judging.check(one.answers, one.name)
    return Contest(
        best=best,
        about=about,
        summary=rows.summary,
        rows=rows.table,
        judging=judging,
        candidates=candidates,
        metric=metric,
        is_asked=asked is not None,
        tick=partial(interrupts.tick, db),
    )


def _has_trained(db: Database, rows: requests.Data, summary: Mapping[str, Any]) -> bool:
    trained_on = results.named_table(summary, "source_table")
    return trained_on is not None and rows.table == names.find_table(db, trained_on)


def _choosing_rows(
    db: Database, packed_table: str | None, best: TrainedModel, summary: Mapping[str, Any]
) -> requests.Data:
    in_folds = by_fold.has_models_by_fold(db, _info_table(db, best))
    usual = "source_table" if in_folds else "validation_table"
    named = packed_table or results.named_table(summary, usual)
    if named is None:
        raise CerebroError(
            f"{best.holder.name} was trained without a validation table",
            detail="The rows that a model was trained on cannot choose.",
            hint="Name a packed table of other rows: packed_table => '…'.",
        )
    rows = requests.data(db, named, "packed table")
    # Of models by fold, each row is answered by the one that has not seen it.
    if _has_trained(db, rows, summary) and not in_folds:
        raise CerebroError(
            f"{best.holder.name} was trained on the rows of {rows.table.quoted}: they cannot choose",
            hint="Name a packed table of other rows.",
        )
    belonging.check(db, best.holder, rows.summary, rows.table.quoted)
    return rows


def _info_table(db: Database, best: TrainedModel) -> Table:
    table = best.holder.weights_table(db)
    return names.resolve_table(db, names.quote(table.schema, table.name + "_info"))


def _candidates(db: Database, best: TrainedModel, judging: comparing.JudgingRows) -> Iterator[Candidate]:
    for key, of_config in by_fold.models_of_configs(db, _info_table(db, best)).items():
        parts = [_part(db, best, mst_key, fold) for fold, mst_key in of_config.items()]
        one = Candidate(key, parts, _answers(db, parts, judging))
        if np.isfinite(one.answers).all():
            yield one
        else:
            db.notice(f"{one.name} is left out: it answers with NaN or infinity")


def _part(db: Database, best: TrainedModel, mst_key: int, fold: int | None) -> CandidatePart:
    found = trained.find_model(db, best.holder.name, mst_key)
    return CandidatePart(found, models.trained(db, found), fold)


def _answers(db: Database, parts: Sequence[CandidatePart], judging: comparing.JudgingRows) -> np.ndarray:
    """Return the answers for all rows: in folds, each row's by the model that has not seen it."""
    if judging.folds is None:
        return np.mean([judging.answer(db, part.model) for part in parts], axis=0)
    answers = np.full(judging.truth.shape, np.nan)
    for part in parts:
        places = judging.folds == part.fold
        answers[places] = judging.answer(db, part.model, places)
    return answers
