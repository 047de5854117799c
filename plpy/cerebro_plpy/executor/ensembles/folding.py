"""Trains configs again in folds: one model for each fold, on all rows outside this fold."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.executor.calls.fit import FitCall
from cerebro_plpy.executor.ensembles.affording import FoldedTraining, afford
from cerebro_plpy.executor.ensembles.candidates import Candidate
from cerebro_plpy.executor.ensembles.contest import Contest
from cerebro_plpy.executor.running import resume
from cerebro_plpy.executor.running import run as runner
from cerebro_plpy.executor.starting import begin, tables
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.options import LOSS, METRIC
from cerebro_plpy.packing import options as pack_options
from cerebro_plpy.packing import preprocess
from cerebro_plpy.packing.dividing import folds
from cerebro_plpy.packing.pack import pack
from cerebro_plpy.predicting import trained
from cerebro_plpy.predicting.models import running_engine
from cerebro_plpy.store import names, session
from cerebro_plpy.store.models import by_fold, models, retraining
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed, source_rows
from cerebro_plpy.store.runs import results, runs
from cerebro_plpy.topology.choose import RowsToHand, find_topology
from cerebro_plpy.topology.inline import InlineTopology
from cerebro_plpy.topology.local import count_started

# The share of the time for folds in which they train; the rest is for packing and compiling.
TRAINED_SHARE = 0.85
# The suffixes of tables that are created beside the ensemble's table, and dropped again.
FOLDED = "_folds"
# They are short, since the names of tables are limited.
_CONFIGS, _MODELS = FOLDED + "_c", FOLDED + "_m"
FOLD_TABLES = (
    *(FOLDED + end for end in ("", packed.SUMMARY)),
    *(_CONFIGS + end for end in ("", "_summary")),
    *(_MODELS + end for end in ("", "_info", "_summary")),
)


@dataclass(frozen=True)
class Folding:
    """The options of training in folds: how rows are divided, and the seconds that all models may train.

    They end at `ends_at` on the monotonic clock, if the caller's budget has begun.
    """

    said: Mapping[str, Any]
    seconds: int | None = None
    ends_at: float | None = None

    def count_left(self) -> int | None:
        """Return the seconds that are left for the models; None if they are not limited."""
        if self.seconds is None or self.ends_at is None:
            return self.seconds
        return max(0, min(self.seconds, math.floor(self.ends_at - time.monotonic())))


@contextmanager
def train_in_folds(
    db: Database, contest: Contest, candidates: Sequence[Candidate], output: str, folding: Folding
) -> Iterator[str | None]:
    """Train as many of the candidates in folds as time allows; yield the name of their model table.

    Yield None if there is no time for any of them. At the end of the `with` block, the tables and the run
    are deleted.
    """
    training = _training(db, contest)
    (labelled, count) = fold_rows(db, training, folding.said)
    times = (count - 1) * (1 + contest.summary.total_rows / training.summary.total_rows)
    left = folding.count_left()
    trains = None if left is None else math.floor(left * TRAINED_SHARE)
    affordable = afford(db, contest, candidates, times, trains)
    if not affordable.candidates:
        db.notice(
            f"there is no time for models in folds: those of one config would take some"
            f" {math.ceil(affordable.least_seconds)} s, with {left} s left"
        )
        yield None
        return
    newest = runner.find_newest(db)
    rows = _pack_all_rows(db, training, labelled, count, names.with_suffix(output, FOLDED))
    made = names.with_suffix(output, _MODELS)
    _train(db, contest, affordable, rows, output=output, folding=folding)
    yield made
    resume.forget(db, runner.last_run(db))
    runner.keep_newest(db, newest)
    by_fold.drop_tables(
        db, [names.resolve_table(db, names.with_suffix(output, suffix)) for suffix in FOLD_TABLES]
    )


def _train(
    db: Database,
    contest: Contest,
    trained: FoldedTraining,
    rows: requests.Data,
    *,
    output: str,
    folding: Folding,
) -> None:
    """Train the configs on the rows that are packed in folds."""
    candidates, epochs = trained.candidates, trained.epochs
    chosen = [one.parts[0].found.selected for one in candidates]
    arch = str(results.named_table(contest.about, "model_arch_table"))
    configs = names.with_suffix(output, _CONFIGS)
    tables.select(db, configs, chosen, arch, contest.about.get("object_table"))
    models_by_fold = len(candidates) * int(rows.summary.folds or 1)
    backend = candidates[0].parts[0].found.backend
    started = count_started(session.current_user(db), backend)
    topology, _ = find_topology(
        db, [rows.table.oid], RowsToHand(rows.summary.total_rows, epochs * models_by_fold, started)
    )
    if isinstance(topology, InlineTopology):
        # This session trains by itself: if it already runs an engine, it cannot start another.
        backend = running_engine() or backend
    left = folding.count_left()
    run_id = contest.about.get("run_id")
    parts = None if run_id is None else runs.read_limit(db, run_id, "epochs_per_pass")
    options = {
        "seed": contest.about["seed"],
        "backend": backend,
        "restore_best": True,
        "compare_by": LOSS if contest.goes_by_loss else METRIC,
        "training_metrics": False,
        "cross_validate": {"models": True},
        **({} if parts is None else {"epochs_per_pass": parts}),
        **({} if left is None else {"max_seconds": max(1, left)}),
    }
    begin.begin(
        db,
        FitCall(
            source_table=names.with_suffix(output, FOLDED),
            model_output_table=names.with_suffix(output, _MODELS),
            model_selection_table=configs,
            num_iterations=epochs,
            use_gpus=False,
            validation_table=None,
            metrics_compute_frequency=1,
            warm_start=False,
            name=contest.about.get("name"),
            description=f"the best configs of {contest.best.holder.name} in folds",
            use_caching=False,
            options=json.dumps(options),
        ),
        started=started,
        ends_at=folding.ends_at,
    )


def _training(db: Database, contest: Contest) -> requests.Data:
    """Return the packed table on which the compared models were trained."""
    table = names.resolve_table(db, results.named_table(contest.about, "source_table"), "packed table")
    found = packed.summary(db, table.schema, table.name)
    if found.stored is not None or len(found.versions) > 1:
        what = "holds the outputs of a net" if found.stored is not None else "has rows of several tables"
        raise CerebroError(
            f"option folds: {table.quoted} {what}, so its rows cannot be packed again",
            hint="Leave option folds out.",
            sqlstate=NOT_SUPPORTED,
        )
    return requests.Data(table, found)


def fold_rows(db: Database, training: requests.Data, said: Mapping[str, Any]) -> tuple[Table, int]:
    """Return the labelled rows of a packed table's source with their folds, and the number of folds.

    `said` is the option `folds`, which says how the rows are divided.
    """
    summary = training.summary
    about = names.resolve_table(db, summary.quoted, "summary")
    source = names.resolve_table(db, _find_source(db, summary, about), "source table")
    if not all(models.is_own(db, one) for one in (training.table, about)):
        # Another role has named the source.
        trained.check_readable(
            db,
            [source],
            instead="Pack the rows yourself, or leave option folds out.",
            why=f"{training.table.quoted} was made of these rows, and you read them with your own rights.",
        )
    known = packed.columns_of(db, source)
    independents = summary.independent_varname if summary.features is None else ()
    named = (*summary.dependent_varname, *independents)
    missing = [name for name in named if name not in known]
    if missing:
        shown = ", ".join(map(names.quote, missing))
        raise CerebroError(
            f"option folds: {training.table.quoted} has {shown}, which {source.quoted} lacks:"
            " several columns became one, or a column is gone",
            hint="Leave option folds out.",
            sqlstate=NOT_SUPPORTED,
        )
    label = known[summary.dependent_varname[0]]
    labelled = source_rows.with_values(source, label)
    return folds.table(db, labelled, known, said=said, label=label, seed=summary.seed)


def _find_source(db: Database, summary: packed.PackedSummary, about: Table) -> str:
    """Return the name of the table that a packed table was made of.

    The summary has the name as it was written, which another search_path may read otherwise. A recipe has the
    full name, unless other rows were packed by it.
    """
    written, recipe = summary.source_table, json.loads(retraining.recipe(db, about) or "null")
    source = recipe.get("source") if isinstance(recipe, dict) else None
    if not isinstance(source, str):
        return written
    is_same = names.parse_table(source, "source table")[1] == names.parse_table(written, "source table")[1]
    return source if is_same else written


def _pack_all_rows(db: Database, data: requests.Data, rows: Table, count: int, output: str) -> requests.Data:
    """Pack rows in folds, with the features and options of the training rows."""
    training = data.summary
    listed = "*" if training.features is not None else _quoted(training.independent_varname)
    like = preprocess.job_like(
        db,
        training,
        source=rows,
        target=names.target_table(db, output, suffixes=(packed.SUMMARY,)),
        spelled=(training.source_table, output),
        dependents=_quoted(training.dependent_varname),
        independents=listed,
        memory=pack_options.parse(None, pack_options.VALIDATION).memory_mb << 20,
    )
    pack(db, replace(like, folds=count))
    return requests.data(db, output, "packed table")


def _quoted(columns: Sequence[str]) -> str:
    return ", ".join(map(names.quote, columns))
