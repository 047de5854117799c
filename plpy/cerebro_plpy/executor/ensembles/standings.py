"""Sends notices on how well models answer, compared with one constant answer for all rows.

Models are compared on rows by which they were not chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.executor.ensembles import comparing
from cerebro_plpy.executor.ensembles.contest import Contest, open_contest
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.examining.scoring import ACCURACY, AUC, BALANCED, F1, LOGLOSS, MAE, R2
from cerebro_plpy.store.packed import packed

ADVICE = "More rows, columns that say more, or a longer budget may help."


@dataclass(frozen=True)
class ConstantAnswer:
    """One answer for all rows: its name, for example "the mean of price", and its values by metric.

    `loss` is None for quantities. `variance` is that of the label, if this is a single quantity.
    """

    name: str
    values: Mapping[str, float]
    loss: float | None
    variance: float | None


def measure_constant(db: Database, rows: requests.Data, metric: str) -> ConstantAnswer:
    """Measure the best constant answer by `metric` for the rows of a packed table, at most 50,000.

    Of classes, measure the loss as well, and of quantities all metrics. In means over the classes, a class
    without rows counts 0, as in the metrics of the nets. Weights of rows count in the loss alone, as there.
    """
    truth = comparing.read_truth(db, rows)
    blind = scoring.blind(truth, metric)
    others = () if rows.summary.one_hot[0] else scoring.OF_QUANTITIES
    measured = {one: scoring.shown(one, scoring.ERRORS[one](blind, truth)) for one in {metric, *others}}
    if metric in (AUC, F1, BALANCED):
        measured[metric] *= float((truth.sum(axis=0) > 0).mean())
    is_single = not rows.summary.one_hot[0] and truth.shape[1] == 1
    variance = float(truth.var()) if is_single else None
    loss = scoring.blind_loss(truth, comparing.read_weights(db, rows)) if rows.summary.one_hot[0] else None
    return ConstantAnswer(_name_constant(rows.summary, truth, metric), measured, loss, variance)


def tell_ensemble(db: Database, contest: Contest, together: np.ndarray, what: str) -> None:
    """Send a notice with the metrics of an ensemble, of the best model alone, and of a constant answer.

    `together` has the answers of the ensemble, and `what` describes it in the notice.
    """
    alone = contest.answer_apart(1).plain
    others = {"the best alone": _values(contest, alone), "one answer for all rows": _blind_values(contest)}
    _tell(db, contest, what, together, others)
    _tell_no_better(db, contest, "the ensemble", together)


def tell_best(db: Database, model_table: str, metric: str | None) -> None:
    """Send a notice with the metrics of a table's best model and of a constant answer."""
    contest = open_contest(db, model_table, None, metric)
    if contest.candidates:
        alone = contest.answer_apart(1).plain
        _tell(db, contest, "the best config", alone, {"one answer for all rows": _blind_values(contest)})
        _tell_no_better(db, contest, "the best config", alone)


def _tell(
    db: Database, contest: Contest, what: str, answers: np.ndarray, others: dict[str, list[str]]
) -> None:
    found = zip(_metrics(contest), _values(contest, answers), strict=True)
    beside = "".join(f"; {name} {', '.join(values)}" for name, values in others.items())
    rows = len(contest.judging.truth)
    how = f"each half of the {rows} held-out rows measures what the other half chose"
    if contest.judging.folds is not None:
        how = f"each of all {rows} rows is answered by models that have not seen it, chosen by the other half"
    db.notice(
        f"{what}: {', '.join(f'{metric} {value}' for metric, value in found)}{beside}"
        f" ({how if rows > 1 else 'on the row that chose'})"
    )


def _metrics(contest: Contest) -> list[str]:
    """Return the metric by which models are compared, and the usual one: accuracy for classes, else R2."""
    return list(dict.fromkeys((contest.metric, ACCURACY if contest.judging.is_classes else R2)))


def _values(contest: Contest, answers: np.ndarray) -> list[str]:
    return [_shown(metric, answers, contest.judging.truth) for metric in _metrics(contest)]


def _blind_values(contest: Contest) -> list[str]:
    truth = contest.judging.truth
    return [_shown(metric, scoring.blind(truth, metric), truth) for metric in _metrics(contest)]


def _shown(metric: str, answers: np.ndarray, truth: np.ndarray) -> str:
    return f"{scoring.shown(metric, scoring.ERRORS[metric](answers, truth)):.4g}"


def _tell_no_better(db: Database, contest: Contest, who: str, answers: np.ndarray) -> None:
    """Send a notice unless the answers are better than a constant answer by more than chance explains.

    `who` names the model or ensemble that gave the answers. A quantity is also judged by its R².
    """
    truth, usual = contest.judging.truth, _metrics(contest)[-1]
    asked = contest.metric if contest.is_asked else usual
    # Answers by mere chance have a better F1 than one answer for all rows.
    asked = BALANCED if asked == F1 else asked
    for metric in dict.fromkeys((asked,) if contest.judging.is_classes else (asked, usual)):
        blind = scoring.blind(truth, metric)
        gain, chance = scoring.gain(*(scoring.jackknife(one, truth, metric) for one in (answers, blind)))
        if gain > chance:
            continue
        verdict = "it is worse" if gain < -chance else "the difference may be chance"
        db.notice(
            f"by {metric}, {who} is no better than always answering"
            f" {_name_constant(contest.summary, truth, metric)}:"
            f" {_shown(metric, answers, truth)} and {_shown(metric, blind, truth)}, {verdict}. {ADVICE}"
        )
        return


def _name_constant(summary: packed.PackedSummary, truth: np.ndarray, metric: str) -> str:
    """Return the name of the best constant answer by `metric`, for example "the mean of price"."""
    label = summary.dependent_varname[0]
    if not summary.one_hot[0]:
        return f"the {'median' if metric == MAE else 'mean'} of {label}"
    if metric in (LOGLOSS, AUC):
        return f"the shares of the classes of {label}"
    frequent = int(truth.sum(axis=0).argmax())
    # One-hot vectors have no names of classes.
    values = summary.class_values[0]
    return f"class {frequent}" if values is None else f"'{values[frequent]}'"
