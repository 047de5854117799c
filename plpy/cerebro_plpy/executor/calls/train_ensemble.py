"""Ends cerebro.train: the leaderboard, and the ensemble of the best configs, of a small table in folds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.executor.calls.train_order import LEAST_SECONDS, TrainOrder, write_statement
from cerebro_plpy.executor.ensembles import ensemble, folding, standings
from cerebro_plpy.logical.metrics import standing
from cerebro_plpy.madlib.params import reparse_compile
from cerebro_plpy.packing import preprocess
from cerebro_plpy.store import dialect, names
from cerebro_plpy.store.models import retraining
from cerebro_plpy.store.packed import packed, splits
from cerebro_plpy.store.runs import measurements, results

# Tables with fewer rows are trained on in folds, in as many. For few rows they matter more than a longer
# search, which then has a share of the budget; those of more rows have what the search leaves.
FOLDED_ROWS, FEW_ROWS, FOLDS, SEARCH_SHARE = 10_000, 3000, 5, 0.65
Ranked = tuple[int, str, str, str, float | None, float | None, bool]


def finish(db: Database, name: str | None) -> list[Ranked]:
    """Join the best nets of a search that was prepared; return the leaderboard."""
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
    return join_best(db, TrainOrder(*asked, recipe=made))


def join_best(db: Database, task: TrainOrder) -> list[Ranked]:
    """Make the ensemble, or tell how the best config answers; return the leaderboard."""
    board = _leaderboard(db, task)
    in_folds = choose_folds(db, task)
    if task.given.get("single") or (len(board) == 1 and in_folds is None):
        standings.tell_best(db, task.name, task.metric)
        return board
    ensemble.ensemble(
        db,
        ensemble.EnsembleCall(
            model_table=task.name,
            output_table=task.table(ensemble.SUFFIX),
            metric=task.metric,
            options=json.dumps(_ensemble_options(task, in_folds, _searched_seconds(db, task))),
        ),
    )
    return board


def _ensemble_options(
    task: TrainOrder, in_folds: Mapping[str, Any] | None, searched: float | None = None
) -> Mapping[str, Any]:
    """Return the options of the ensemble; folds have what a search that took so long leaves of the budget."""
    if in_folds is None:
        return {}
    left = task.seconds - math.ceil(task.seconds * SEARCH_SHARE if searched is None else searched)
    return {"folds": in_folds, "max_seconds": max(LEAST_SECONDS, left)}


def _searched_seconds(db: Database, task: TrainOrder) -> float:
    table = names.resolve_table(db, task.table("_summary"), "model summary")
    return measurements.seconds_spent(db, results.summary_row(db, table.quoted)["run_id"])


def write_ensemble(task: TrainOrder, in_folds: Mapping[str, Any] | None) -> list[str]:
    """Return the statement that makes the ensemble, if there is to be one."""
    if task.given.get("single"):
        return []
    named = {} if task.metric is None else {"metric": dialect.literal(task.metric)}
    options = _ensemble_options(task, in_folds) or None
    return [write_statement("ensemble", (task.name, task.table(ensemble.SUFFIX)), options, **named)]


def search_seconds(db: Database, task: TrainOrder, in_folds: Mapping[str, Any] | None) -> int:
    """Return how long the search may take: what training a small table in folds leaves of the budget."""
    if in_folds is None or _count_rows(db, task) >= FEW_ROWS:
        return task.seconds
    return max(LEAST_SECONDS, round(task.seconds * SEARCH_SHARE))


def _count_rows(db: Database, task: TrainOrder) -> int:
    return sum(task.read_packed(db, end).summary.total_rows for end in ("", preprocess.VALIDATION))


def choose_folds(db: Database, task: TrainOrder) -> Mapping[str, Any] | None:
    """Return how all rows are folded for the ensemble, of a small table unless the call says otherwise."""
    said, held_out = task.given.get("folds"), task.given.get("validation", {})
    held_out = held_out if isinstance(held_out, Mapping) else {}
    if task.given.get("single"):
        return None
    if said is not None:
        return said or None
    # Rows of the past would be answered by models that have seen what followed.
    if "after" in held_out or _count_rows(db, task) >= FOLDED_ROWS:
        return None
    training = task.read_packed(db)
    usual = {"by": held_out["by"]} if "by" in held_out else {"stratify": training.summary.one_hot[0]}
    usual = {"count": FOLDS, **usual}
    rows, _ = folding.fold_rows(db, training, usual)
    # Of few rows, or few values of a column, a fold may have none.
    return usual if splits.count_folds(db, rows) == FOLDS else None


def _leaderboard(db: Database, task: TrainOrder) -> list[Ranked]:
    """Return the configs that have a model, best first; refuse if there are none."""
    info = names.resolve_table(db, task.table("_info"), "model info table")
    arch = names.resolve_table(db, task.table("_nets"), "model architecture table")
    rows = results.ranked(db, info.quoted, arch.quoted)
    if not rows:
        raise CerebroError(
            f"no config of {task.name} has a model",
            hint="The view cerebro.leaderboard says what became of each config.",
            sqlstate=WRONG_STATE,
        )
    best, *others = sorted(rows, key=_place)
    return [_ranked(task, best, is_best=True), *(_ranked(task, row, is_best=False) for row in others)]


def _place(row: Mapping[str, Any]) -> tuple[tuple[float, float], int]:
    """Return the sort key of the leaderboard."""
    return standing(reparse_compile(row["compile_params"]), row["value"], row["loss"]), row["mst_key"]


def _ranked(task: TrainOrder, row: Mapping[str, Any], *, is_best: bool) -> Ranked:
    metric = task.metric or row["metric"]
    return row["mst_key"], row["net"], row["params"], metric, row["value"], row["loss"], is_best
