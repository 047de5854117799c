"""Compares trained models by their answers for the rows of a packed table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, WRONG_STATE, CerebroError
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.packing.rows.read import FEATURES, ONE_HOT, scan
from cerebro_plpy.predicting import belonging, models
from cerebro_plpy.predicting.answering.net import answer_packed
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.holders import TrainedModel
from cerebro_plpy.store.packed import packed, partitions

# Enough rows to compare models: more would not change the order. With many classes, fewer rows are read, as
# the answers of all models are held in memory.
ENOUGH_ROWS, MOST_NUMBERS = 50_000, 2_000_000
# How far from 1 the probabilities of a row may add up.
NEAR_ONE = 1e-3


@dataclass(frozen=True)
class JudgingRows:
    """The rows by which models are compared: their inputs, and their labels as numbers or one-hot."""

    inputs: Sequence[np.ndarray]
    truth: np.ndarray
    is_classes: bool
    # The fold of each row, where models that have not seen it are to answer it.
    folds: np.ndarray | None = None

    def answer(self, db: Database, model: models.Model, places: np.ndarray | None = None) -> np.ndarray:
        """Return the answers of a model with one output, for all rows or for the rows at `places`."""
        inputs = self.inputs if places is None else [one[places] for one in self.inputs]
        (answers,) = answer_packed(db, model, inputs)
        return answers.reshape(len(answers), -1).astype(np.float64)

    def check(self, answers: np.ndarray, what: str) -> None:
        """Raise an error if the answers of a model, named by `what`, cannot be compared with the labels."""
        if answers.shape != self.truth.shape:
            raise CerebroError(
                f"{what} answers with {answers.shape[1]} numbers for a row, not with {self.truth.shape[1]}",
                sqlstate=NOT_SUPPORTED,
            )
        shares = (answers >= 0).all() and (np.abs(answers.sum(axis=1) - 1) < NEAR_ONE).all()
        if self.is_classes and not shares:
            raise CerebroError(
                f"{what} does not answer with a probability for each class",
                hint="Give nets of classes a last layer with softmax, and a loss without from_logits.",
                sqlstate=NOT_SUPPORTED,
            )

    def checked_answer(self, db: Database, found: TrainedModel) -> np.ndarray:
        """Return a model's answers for all rows; raise an error if they do not fit the labels."""
        answers = self.answer(db, models.trained(db, found))
        self.check(answers, found.holder.name)
        return answers

    def measure(self, answers: np.ndarray, metric: str) -> float:
        """Return the error of answers by a metric, where less is better; infinity if the error is NaN."""
        error = scoring.ERRORS[metric](answers, self.truth)
        return error if error == error else float("inf")


def read_rows(db: Database, rows: requests.Data) -> JudgingRows:
    """Return rows of a packed table with one label: about `ENOUGH_ROWS`, fewer with many classes."""
    belonging.refuse_features(rows.summary, rows.table.quoted)
    if len(rows.summary.dependent_varname) != 1:
        raise CerebroError("nets of several outputs cannot be compared", sqlstate=NOT_SUPPORTED)
    most = _count_enough(rows)
    inputs = [_read(db, rows, name, FEATURES, most) for name in rows.summary.independent_varname]
    return JudgingRows(inputs, read_truth(db, rows), rows.summary.one_hot[0])


def read_truth(db: Database, rows: requests.Data) -> np.ndarray:
    """Return the first label of the rows of a packed table that `read_rows` reads, as numbers or one-hot."""
    dtype = ONE_HOT if rows.summary.one_hot[0] else FEATURES
    truth = _read(db, rows, rows.summary.dependent_varname[0], dtype, _count_enough(rows))
    return truth.reshape(len(truth), -1).astype(np.float64)


def read_weights(db: Database, rows: requests.Data) -> np.ndarray | None:
    """Return the weights of the rows that `read_rows` reads; None if the table has no weights."""
    if rows.summary.weight_varname is None:
        return None
    return _read(db, rows, packed.WEIGHT, FEATURES, _count_enough(rows)).reshape(-1).astype(np.float64)


def _count_enough(rows: requests.Data) -> int:
    width = math.prod(rows.summary.target_shapes[0])
    return max(1, min(ENOUGH_ROWS, MOST_NUMBERS // width))


def with_folds(db: Database, rows: requests.Data, judging: JudgingRows) -> JudgingRows:
    """Return `judging` with the fold of each row, so that a model can answer only rows that it has not seen.

    `rows` is the packed table from which `judging` was read.
    """
    label, below = rows.summary.dependent_varname[0], rows.summary.below
    lengths = partitions.folds_of_buffers(db, rows.table.quoted, label, below)
    folds = np.repeat(*np.array(lengths, dtype=np.int64).T)[: len(judging.truth)]
    return replace(judging, folds=folds)


def _read(db: Database, rows: requests.Data, name: str, dtype: np.dtype, most: int) -> np.ndarray:
    # Rows that are appended meanwhile would stand in some of the columns alone.
    found = list(scan(db, rows.table.quoted, name, dtype, most, below=rows.summary.below))
    if not found:
        raise CerebroError(f"{rows.table.quoted} holds no rows", sqlstate=WRONG_STATE)
    return np.concatenate(found)
