"""The end of cerebro.train: the leaderboard, and an ensemble of the best configs.

On a small table, the models of the ensemble are trained in folds.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.executor.calls.train_order import LEAST_SECONDS, TrainOrder, write_statement
from cerebro_plpy.executor.ensembles import ensemble, folding, standings
from cerebro_plpy.executor.running.report import duration
from cerebro_plpy.logical.budget import LEAST_SHARE
from cerebro_plpy.logical.metrics import standing
from cerebro_plpy.madlib.params import reparse_compile
from cerebro_plpy.nets import portfolio
from cerebro_plpy.packing import preprocess
from cerebro_plpy.packing.dividing import folds
from cerebro_plpy.predicting.examining.scoring import OF_QUANTITIES, R2
from cerebro_plpy.store import dialect, names
from cerebro_plpy.store.models import retraining
from cerebro_plpy.store.packed import packed, splits
from cerebro_plpy.store.runs import measurements, results

# Tables below FOLDED_ROWS are trained on in FOLDS folds. Below FEW_ROWS, folds matter more than the search,
# which then gets SEARCH_SHARE of the seconds; on other tables, folds get the seconds that the search leaves.
FOLDED_ROWS, FEW_ROWS, FOLDS, SEARCH_SHARE = 10_000, 3000, 5, 0.65
# The share of the budget that is left to the ensemble on a large table.
ENSEMBLE_SHARE = 0.1


class Ranked(NamedTuple):
    """A row of the leaderboard: a config, or without `mst_key` the best constant answer."""

    mst_key: int | None
    net: str
    parameters: str | None
    metric: str
    value: float | None
    loss: float | None
    best: bool
    rmse: float | None
    mae: float | None
    r2: float | None


def finish(db: Database, name: str | None) -> list[Ranked]:
    """Make the ensemble of a search that `cerebro.prepare_train` prepared; return the leaderboard."""
    table = name and names.with_suffix(name, "_packed" + packed.SUMMARY)
    summary = names.resolve_table(db, table, "summary")
    recipe = retraining.recipe(db, summary)
    if recipe is None:
        raise CerebroError(
            f"{summary.quoted} does not say how its rows are to be trained on",
            hint="Give the name with which cerebro.prepare_train was called.",
            sqlstate=WRONG_STATE,
        )
    made = json.loads(recipe)
    asked = (made["source"], made["target"], str(name), made["options"], made["seconds"])
    packing = made.get(retraining.PACKING_SECONDS, 0.0)
    return join_best(db, TrainOrder(*asked, recipe=made, packing_seconds=packing))


def join_best(db: Database, task: TrainOrder) -> list[Ranked]:
    """Make the ensemble of the best configs, and return the leaderboard.

    If the call asks for a single model, send a notice with the metrics of the best config instead.
    """
    board = _leaderboard(db, task)
    _tell_linear(db, board)
    in_folds = choose_folds(db, task)
    configs = len(board) - 1
    if task.given.get("single") or (configs == 1 and in_folds is None):
        standings.tell_best(db, task.name, task.metric)
        return board
    spent = _spent_seconds(db, task)
    ensemble.ensemble(
        db,
        ensemble.EnsembleCall(
            model_table=task.name,
            output_table=task.table(ensemble.SUFFIX),
            metric=task.metric,
            options=json.dumps(_ensemble_options(task, in_folds, spent)),
            ends_at=time.monotonic() + task.seconds - spent,
        ),
    )
    return board


def _ensemble_options(
    task: TrainOrder, in_folds: Mapping[str, Any] | None, spent: float | None = None
) -> Mapping[str, Any]:
    """Return the options of the ensemble.

    If its models are trained in folds, they get the seconds that are left of the budget. `spent` is how many
    seconds of it are spent, if that is known.
    """
    if in_folds is None:
        return {}
    left = task.seconds - math.ceil(task.seconds * SEARCH_SHARE if spent is None else spent)
    return {"folds": in_folds, "max_seconds": max(LEAST_SECONDS, left)}


def _spent_seconds(db: Database, task: TrainOrder) -> float:
    """Return how many seconds of the budget are spent: all since the call began.

    If another call has packed and searched, return the seconds of its packing and search.
    """
    table = names.resolve_table(db, task.table("_summary"), "model summary")
    searched = measurements.seconds_spent(db, results.summary_row(db, table.quoted)["run_id"])
    return max(task.packing_seconds + searched, time.monotonic() - task.began)


def write_ensemble(task: TrainOrder, in_folds: Mapping[str, Any] | None) -> list[str]:
    """Return a list with the SQL statement that makes the ensemble; an empty list if none is made."""
    if task.given.get("single"):
        return []
    named = {} if task.metric is None else {"metric": dialect.literal(task.metric)}
    options = _ensemble_options(task, in_folds) or None
    return [write_statement("ensemble", (task.name, task.table(ensemble.SUFFIX)), options, **named)]


def search_seconds(db: Database, task: TrainOrder, in_folds: Mapping[str, Any] | None) -> int:
    """Return how many seconds the search may take.

    It is the budget less what packing took and the ensemble will take, but at least half of the budget. With
    folds on few rows, it is a share of that, since the folds get the rest; on more rows, the folds get what
    the search leaves. A notice says how the budget is divided.
    """
    spent = time.monotonic() - task.began
    seconds, wanted = share_budget(task.seconds, spent)
    if in_folds is not None and _count_rows(db, task) < FEW_ROWS:
        seconds = max(LEAST_SECONDS, round(seconds * SEARCH_SHARE))
    said = f"packing took {duration(spent)} of the budget of {task.seconds} s: the search has {seconds} s"
    has_ensemble = not task.given.get("single") and (task.configs > 1 or in_folds is not None)
    if wanted < seconds and spent >= LEAST_SECONDS:
        said += " all the same"
    elif has_ensemble and spent + seconds < task.seconds:
        said += f", and an ensemble{'' if in_folds is None else ' of models in folds'} has the rest"
    db.notice(said)
    return seconds


def share_budget(seconds: int, spent: float) -> tuple[int, int]:
    """Return the seconds that a search gets, and those that its budget still has after `spent` seconds.

    A search gets at least a fixed share of its budget. If that is more than the budget still has, the caller
    warns its user with both numbers.
    """
    left = round(seconds * (1 - ENSEMBLE_SHARE) - spent)
    return max(left, math.ceil(seconds * LEAST_SHARE)), left


def _count_rows(db: Database, task: TrainOrder) -> int:
    return sum(task.read_packed(db, end).summary.total_rows for end in ("", preprocess.VALIDATION))


def choose_folds(db: Database, task: TrainOrder) -> Mapping[str, Any] | None:
    """Return the option `folds` for the ensemble; None if the ensemble's models are not trained in folds.

    By default, only small tables are divided into folds. Raise an error if the call asks for folds, and one
    of them would be empty.
    """
    said, held_out = task.given.get("folds"), task.given.get("validation", {})
    held_out = held_out if isinstance(held_out, Mapping) else {}
    if task.given.get("single") or said is False:
        return None
    # In folds, models would answer past rows after training on later rows.
    if said is None and ("after" in held_out or _count_rows(db, task) >= FOLDED_ROWS):
        return None
    training = task.read_packed(db)
    chosen = folds.option("folds", FOLDS if said is None else said)
    if chosen.keys() - {"stratify"} == {"count"} and not chosen.get("stratify"):
        more = {"by": held_out["by"]} if "by" in held_out else {"stratify": training.summary.one_hot[0]}
        chosen = {"count": chosen["count"], **more}
    rows, count = folding.fold_rows(db, training, chosen)
    # With few rows, or few values of a column, a fold may be empty.
    if splits.count_folds(db, rows) == count:
        return chosen
    if said is not None:
        raise CerebroError(
            f"option folds is {json.dumps(said)}, and a fold would have no rows", hint="Ask for fewer folds."
        )
    return None


def _leaderboard(db: Database, task: TrainOrder) -> list[Ranked]:
    """Return a row for each config that has a model, best first, and a row for the best constant answer.

    Raise an error if no config has a model.
    """
    info = names.resolve_table(db, task.table("_info"), "model info table")
    arch = names.resolve_table(db, task.table("_nets"), "model architecture table")
    rows = sorted(results.ranked(db, info.quoted, arch.quoted), key=_find_place)
    if not rows:
        raise CerebroError(
            f"no config of {task.name} has a model",
            hint="The view cerebro.leaderboard says what became of each config.",
            sqlstate=WRONG_STATE,
        )
    about = names.resolve_table(db, task.table("_summary"), "model summary")
    measured = measurements.of_results(db, results.summary_row(db, about.quoted)["run_id"], OF_QUANTITIES)
    metric = task.metric or rows[0]["metric"]
    constant = standings.measure_constant(db, task.read_packed(db, preprocess.VALIDATION), metric)
    board: list[Ranked] = []
    for row in rows:
        key, is_best = row["mst_key"], not board
        rmse, mae, r2 = (measured.get((key, name)) for name in OF_QUANTITIES)
        if constant.variance is not None and rmse is not None:
            r2 = _explain(rmse, constant.variance)
        value = r2 if metric == R2 and constant.variance is not None else row["value"]
        board.append(
            Ranked(key, row["net"], row["params"], metric, value, row["loss"], is_best, rmse, mae, r2)
        )
    return [*board, _rank_constant(constant, metric)]


def _explain(rmse: float, variance: float) -> float:
    """Return R² of answers with this error, for rows with this variance."""
    return 1 - rmse**2 / variance if variance else float(rmse == 0)


def _tell_linear(db: Database, board: Sequence[Ranked]) -> None:
    """Send a notice if the best config is a linear net although other nets were tried."""
    tried = [row.net for row in board if row.mst_key is not None]
    if tried[0] == portfolio.LINEAR and set(tried) != {portfolio.LINEAR}:
        db.notice(
            f"a linear net is the best config: other nets learn no more from these columns."
            f" {standings.ADVICE}"
        )


def _rank_constant(found: standings.ConstantAnswer, metric: str) -> Ranked:
    """Return the row of the leaderboard for the best constant answer by `metric`."""
    value, *others = [found.values.get(name) for name in (metric, *OF_QUANTITIES)]
    return Ranked(None, f"always {found.name}", None, metric, value, found.loss, False, *others)


def _find_place(row: Mapping[str, Any]) -> tuple[tuple[float, float], int]:
    """Return the sort key of a row of the leaderboard; the best row has the lowest key."""
    return standing(reparse_compile(row["compile_params"]), row["value"], row["loss"]), row["mst_key"]
