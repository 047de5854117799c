"""cerebro.worst_rows: returns the rows that a model answers worst, with their labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.predicting import choices
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.examining.labeled import Judge, LabeledRows, find_judge

MOST = 10_000


class WorstRow(NamedTuple):
    """A row as JSON, its label, the predicted value, the probability of the label, and the loss."""

    row: str | None
    truth: str
    prediction: str | None
    probability: float | None
    loss: float


def find_worst_rows(
    db: Database, model: str | None, source: str | None, limit: int | None, mst_key: int | None
) -> list[WorstRow]:
    """Return the `limit` rows with the greatest loss, the worst first.

    Of rows with equal losses, the row that was read first comes first.
    """
    most = _check_limit(limit)
    judge = find_judge(db, model, source, mst_key, whole_rows=True, takes_groups=True)
    kept: list[WorstRow] = []
    for rows in judge.read():
        kept = sorted([*kept, *_worst(judge, rows, most)], key=lambda one: -one.loss)[:most]
    return kept


def _check_limit(limit: int | None) -> int:
    if limit is None:
        raise CerebroError("limit is NULL", hint="Say how many rows.", sqlstate=NULL_NOT_ALLOWED)
    if not 1 <= limit <= MOST:
        raise CerebroError(f"limit must be from 1 to {MOST}, not {limit}")
    return limit


def _worst(judge: Judge, rows: LabeledRows, most: int) -> list[WorstRow]:
    answers = judge.answer(rows.inputs, rows.groups)
    metric = scoring.LOGLOSS if judge.is_classes else scoring.MAE
    losses = scoring.EACH[metric](answers, rows.truth)
    # A net that answers with NaN is as wrong as can be.
    losses = np.where(np.isnan(losses), np.inf, losses)
    found = []
    for place in np.argsort(-losses, kind="stable")[:most].tolist():
        answer, truth = answers[place], rows.truth[place]
        values, likeliest = judge.output.values, int(choices.find_likeliest(answer))
        found.append(
            WorstRow(
                row=rows.texts[place][0],
                truth=rows.labels[place],
                prediction=str(np.float32(answer[0])) if values is None else values[likeliest],
                probability=None if values is None else float(answer @ truth),
                loss=float(losses[place]),
            )
        )
    return found
