"""Opens a contest: a comparison of a table's models by their answers for rows that did not train them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, WRONG_STATE, CerebroError
from cerebro_plpy.executor.ensembles import comparing, group_candidates
from cerebro_plpy.executor.ensembles.candidates import Candidate, CandidatePart, JudgingGroups
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.metrics import find_first_name
from cerebro_plpy.madlib.literal import Call
from cerebro_plpy.madlib.params import CompileParams, reparse_compile
from cerebro_plpy.madlib.spellings import LOSS_TEXTS
from cerebro_plpy.predicting import belonging, group_holders, models, selection, trained
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.group_holders import GroupsHolder, TableOfGroups
from cerebro_plpy.predicting.holders import TrainedModel
from cerebro_plpy.store import interrupts, names
from cerebro_plpy.store.models import by_fold
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.runs import results


@dataclass(frozen=True)
class Contest:
    """A comparison of a table's models: the models, the rows by which they are compared, and the metric."""

    best: TrainedModel
    # The row that describes the models of the table.
    about: Mapping[str, Any]
    summary: packed.PackedSummary
    # The packed table with the rows by which models are compared.
    rows: Table
    judging: comparing.JudgingRows
    candidates: Sequence[Candidate]
    metric: str
    # Whether the call named the metric.
    is_asked: bool
    # The groups of the rows; None where models are not of groups.
    groups: JudgingGroups | None
    # Lets the server act on a cancel.
    tick: Callable[[], None]

    @cached_property
    def answers(self) -> np.ndarray:
        return np.stack([one.answers for one in self.candidates])

    def name_tables(self, **made: str) -> dict[str, str]:
        """Return the names of tables for an ensemble's summary, by summary column.

        They are the names in the summary of the compared models, except for the columns in `made`. The
        validation table is the packed table with the rows by which the models are compared.
        """
        found = self.about.get(results.QUALIFIED[0])
        known = found if isinstance(found, Mapping) else {}
        return {**known, **made, "validation_table": self.rows.quoted}

    @cached_property
    def _compiled(self) -> CompileParams:
        return reparse_compile(self.best.selected.compile_params)

    @property
    def loss_type(self) -> str:
        """The Keras name of the loss that the summaries of ensembles have."""
        if self.judging.is_classes:
            return "categorical_crossentropy"
        return "msle" if self._loss_class == LOSS_TEXTS["msle"] else "mse"

    @property
    def _loss_class(self) -> str | None:
        """The Keras class of the loss that the models learned by; None if it has parameters of its own."""
        loss = self._compiled.loss
        if isinstance(loss, Call):
            return None if loss.kwargs else loss.name
        return LOSS_TEXTS.get(loss) if isinstance(loss, str) else None

    @property
    def goes_by_loss(self) -> bool:
        """Whether the best epoch of a config is the one with the least loss, not with the best metric."""
        if not self.is_asked:
            return True
        # R² and RMSE have the same best epoch.
        wanted = scoring.RMSE if self.metric == scoring.R2 else self.metric
        is_measured = find_first_name(self._compiled) in (wanted, self.metric)
        return wanted in (scoring.LOGLOSS, scoring.RMSE) and not is_measured

    def measure_loss(self, answers: np.ndarray, places: slice | list[int]) -> float:
        """Return the loss of the answers for the rows at `places`; `loss_type` says which loss."""
        own = answers[places], self.judging.truth[places]
        if self.judging.is_classes:
            return scoring.ERRORS[scoring.LOGLOSS](*own)
        if self.loss_type == "msle":
            own = np.log1p(np.maximum(own[0], 0)), np.log1p(np.maximum(own[1], 0))
        weight = self._loss_weight if self._loss_class == LOSS_TEXTS[self.loss_type] else 1.0
        return weight * scoring.ERRORS[scoring.RMSE](*own) ** 2

    @property
    def _loss_weight(self) -> float:
        given = self._compiled.loss_weights
        if isinstance(given, dict):
            given = list(given.values())
        return 1.0 if given is None else given[0] if isinstance(given, list) else given

    def answer_apart(self, size: int) -> selection.AnswersApart:
        """Return answers for each half of the rows, by an ensemble that the other half has chosen.

        That half chooses one model in each of `size` rounds, and may choose a model several times.
        """
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
    """Return the comparison of a table's models by their answers for the rows of a packed table.

    The default of `packed_table` is the validation table or, for models of folds, their training table.
    `asked` is the metric that the call names.
    """
    of_groups = group_holders.find_groups(db, model_table, None)
    best = trained.find_model(db, model_table, None) if of_groups is None else _any_model(db, of_groups)
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
    groups: JudgingGroups | None = None
    if isinstance(of_groups, TableOfGroups):
        keys = by_fold.models_of_configs(db, of_groups.tables.info)
        judging, groups, candidates = group_candidates.read_candidates(db, of_groups, rows, judging, keys)
    else:
        candidates = list(_candidates(db, best, judging))
    scoring.check_rows(metric, judging.truth.sum(axis=0), rows.table.quoted)
    candidates = [one for one in candidates if _is_finite(db, one)]
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
        groups=groups,
        tick=partial(interrupts.tick, db),
    )


def _any_model(db: Database, found: GroupsHolder) -> TrainedModel:
    """Return the model of any one group; raise an error if `found` is a registered version."""
    if not isinstance(found, TableOfGroups):
        raise CerebroError(
            f"{found.models.name} holds models of groups, one for each",
            hint="Name the table of models that it was registered from.",
            sqlstate=NOT_SUPPORTED,
        )
    return found.any_group(db, min(by_fold.models_of_configs(db, found.tables.info)))


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
    # With models by fold, each row is answered by the model that has not seen it.
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
        yield Candidate(key, parts, _answers(db, parts, judging))


def _is_finite(db: Database, one: Candidate) -> bool:
    """Return whether all answers of a config are finite; if not, send a notice that the config is left
    out."""
    is_finite = bool(np.isfinite(one.answers).all())
    if not is_finite:
        db.notice(f"{one.name} is left out: it answers with NaN or infinity")
    return is_finite


def _part(db: Database, best: TrainedModel, mst_key: int, fold: int | None) -> CandidatePart:
    found = trained.find_model(db, best.holder.name, mst_key)
    return CandidatePart(found, models.trained(db, found), fold)


def _answers(db: Database, parts: Sequence[CandidatePart], judging: comparing.JudgingRows) -> np.ndarray:
    """Return a config's answers for all rows; the model of a fold answers the rows that it has not seen."""
    if judging.folds is None:
        return np.mean([judging.answer(db, part.model) for part in parts], axis=0)
    answers = np.full(judging.truth.shape, np.nan)
    for part in parts:
        places = judging.folds == part.fold
        # The rows that are read of a large table may be of other folds.
        if places.any():
            answers[places] = judging.answer(db, part.model, places)
    return answers
