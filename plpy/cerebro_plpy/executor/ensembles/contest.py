"""Opens a contest: the models of a table, and what they answer for rows that choose among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.executor.calls import comparing
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.predicting import belonging, models, selection, trained
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.holders import TrainedModel
from cerebro_plpy.store import interrupts, names
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.runs import results


@dataclass(frozen=True)
class Candidate:
    """A model of the table, and its answers for the rows that choose."""

    found: TrainedModel
    model: models.Model
    answers: np.ndarray


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
    metric = scoring.check_metric(asked, judging.is_classes)
    scoring.check_rows(metric, judging.truth.sum(axis=0), rows.table.quoted)
    candidates = list(_candidates(db, best, judging))
    for one in candidates:
        judging.check(one.answers, f"mst_key {one.found.mst_key}")
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


def _choosing_rows(
    db: Database, packed_table: str | None, best: TrainedModel, summary: Mapping[str, Any]
) -> requests.Data:
    named = packed_table or results.named_table(summary, "validation_table")
    if named is None:
        raise CerebroError(
            f"{best.holder.name} was trained without a validation table",
            detail="The rows that a model was trained on cannot choose.",
            hint="Name a packed table of other rows: packed_table => '…'.",
        )
    rows = requests.data(db, named, "packed table")
    trained_on = results.named_table(summary, "source_table")
    if trained_on is not None and rows.table == names.find_table(db, trained_on):
        raise CerebroError(
            f"{best.holder.name} was trained on the rows of {rows.table.quoted}: they cannot choose",
            hint="Name a packed table of other rows.",
        )
    belonging.check(db, best.holder, rows.summary, rows.table.quoted)
    return rows


def _candidates(db: Database, best: TrainedModel, judging: comparing.JudgingRows) -> Iterator[Candidate]:
    table = best.holder.weights_table(db)
    info = names.resolve_table(db, names.quote(table.schema, table.name + "_info"))
    for key in sorted({row["mst_key"] for row in results.measured(db, info.quoted)}):
        found = trained.find_model(db, best.holder.name, key)
        model = models.trained(db, found)
        answers = judging.answer(db, model)
        if np.isfinite(answers).all():
            yield Candidate(found, model, answers)
        else:
            db.notice(f"mst_key {key} is left out: it answers with NaN or infinity")
