"""cerebro.ensemble: choose the models of a table whose mean answers best, and join them to one net."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, NULL_NOT_ALLOWED, WRONG_STATE, CerebroError
from cerebro_plpy.executor.ensembles import comparing, standings
from cerebro_plpy.executor.ensembles.candidates import Candidate, CandidatePart
from cerebro_plpy.executor.ensembles.contest import Contest, open_contest
from cerebro_plpy.executor.ensembles.folding import FOLD_TABLES, Folding, train_in_folds
from cerebro_plpy.executor.ensembles.group_tables import INFO, GroupEnsemble, write_tables
from cerebro_plpy.executor.ensembles.joined import join_nets
from cerebro_plpy.executor.running import output
from cerebro_plpy.logical.options import integer, parse_options
from cerebro_plpy.nets import joining
from cerebro_plpy.packing.dividing import folds
from cerebro_plpy.predicting import selection, tempering
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.store import names
from cerebro_plpy.store.runs import results

SIZE = 25
MOST = 1000
# The number of rows that show whether a joined net answers as it should.
CHECKED_ROWS = 1000
SUFFIX = "_ensemble"
# The most configs that are trained in folds.
IN_FOLDS = 5
OPTIONS = {"folds": folds.option, "max_seconds": integer(1)}
EnsembleShare = tuple[int, float]


@dataclass(frozen=True)
class EnsembleCall:
    """The arguments of cerebro.ensemble, unchecked."""

    model_table: str | None
    output_table: str | None
    size: int | None = SIZE
    metric: str | None = None
    packed_table: str | None = None
    options: str | None = None
    # The time on the monotonic clock at which the training in folds ends, if its budget has begun.
    ends_at: float | None = None


@dataclass(frozen=True)
class EnsembleChoice:
    """The configs of an ensemble with their shares, and the temperature of its probabilities, if any."""

    parts: Sequence[tuple[Candidate, float]]
    temperature: float | None
    # The answers for the rows that chose: for each half of them, what the other half chose.
    apart: np.ndarray

    @property
    def nets(self) -> list[tuple[CandidatePart, float]]:
        """The models to join, with their shares; a config's models of folds divide its share equally."""
        return [(part, share / len(one.parts)) for one, share in self.parts for part in one.parts]

    @property
    def shown_temperature(self) -> str:
        return "" if self.temperature is None else f" at temperature {self.temperature:.3g}"


def ensemble(db: Database, call: EnsembleCall) -> list[EnsembleShare]:
    """Write the tables of an ensemble; return the `mst_key` and the share of each config in it."""
    size, given = _check_size(call.size), parse_options(call.options, OPTIONS)
    in_folds = Folding(given["folds"], given.get("max_seconds"), call.ends_at) if "folds" in given else None
    if in_folds is None and given:
        raise CerebroError("option max_seconds limits the training of option folds, which is not given")
    suffixes = ("_summary", *(FOLD_TABLES if in_folds else ()))
    target = names.target_table(db, call.output_table, suffixes=suffixes)
    contest = open_contest(db, call.model_table, call.packed_table, call.metric)
    if not contest.candidates:
        name = contest.best.holder.name
        raise CerebroError(f"no model of {name} answers with numbers", sqlstate=WRONG_STATE)
    if contest.groups is not None:
        _check_groups(db, call, in_folds)
    chosen = _choose(contest, size)
    if in_folds is None:
        return _join(db, target, contest, chosen)
    best = _find_best(contest, chosen)
    with train_in_folds(db, contest, best, str(call.output_table), in_folds) as by_fold:
        all_rows = None if by_fold is None else open_contest(db, by_fold, None, call.metric)
        if all_rows is None or not all_rows.candidates:
            return _join(db, target, contest, chosen)
        # Models of folds have learned from the rows that the compared models held out, whichever rows chose.
        held = results.named_table(contest.about, "validation_table")
        rows = (held and names.find_table(db, held)) or contest.rows
        contest = replace(all_rows, best=contest.best, about=contest.about, rows=rows)
        return _join(db, target, contest, _choose(contest, size))


def _check_groups(db: Database, call: EnsembleCall, in_folds: Folding | None) -> None:
    """Raise an error if models of groups are to be trained in folds, or the info table cannot be written."""
    if in_folds is not None:
        raise CerebroError(
            f"{call.model_table} holds models of groups, which are not trained in folds",
            hint="Leave option folds out.",
            sqlstate=NOT_SUPPORTED,
        )
    names.target_table(db, call.output_table, suffixes=(INFO,))


def _join(
    db: Database, target: names.TargetTable, contest: Contest, chosen: EnsembleChoice
) -> list[EnsembleShare]:
    """Write the joined net, and send a notice with its metrics; return the configs with their shares."""
    _write(db, target, contest, chosen)
    _tell(db, target, contest, chosen)
    return [(one.key, share) for one, share in chosen.parts]


def _find_best(contest: Contest, chosen: EnsembleChoice) -> list[Candidate]:
    """Return the configs to train in folds: the chosen ones by share, then the best of the others."""
    measure, truth = scoring.ERRORS[contest.metric], contest.judging.truth
    by_share = [one for one, _ in sorted(chosen.parts, key=lambda part: -part[1])]
    known = {one.key for one in by_share}
    others = [one for one in contest.candidates if one.key not in known]
    found = [*by_share, *sorted(others, key=lambda one: measure(one.answers, truth))]
    return found[:IN_FOLDS]


def _tell(db: Database, target: names.TargetTable, contest: Contest, chosen: EnsembleChoice) -> None:
    count, folds = len(chosen.parts), len(chosen.nets) // len(chosen.parts)
    of = f"{count} model{'s' if count > 1 else ''}"
    if folds > 1:
        of = f"{len(chosen.nets)} models ({count} config{'s' if count > 1 else ''} in {folds} folds)"
    what = f"{target.quoted} is the mean of {of}{chosen.shown_temperature}"
    standings.tell_ensemble(db, contest, chosen.apart, what)


def _check_size(size: int | None) -> int:
    if size is None:
        raise CerebroError("size is NULL", sqlstate=NULL_NOT_ALLOWED)
    if not 1 <= size <= MOST:
        raise CerebroError(f"size is {size}, it must be from 1 to {MOST}")
    return size


def _choose(contest: Contest, size: int) -> EnsembleChoice:
    """Return the ensemble, chosen by its answers for all rows.

    It has a temperature if one that fits half of the rows improves the answers for the other half.
    """
    truth, apart = contest.judging.truth, contest.answer_apart(size)
    counts, _ = selection.choose(contest.answers, truth, contest.metric, size, contest.tick)
    total = sum(counts.values())
    parts = [(contest.candidates[place], count / total) for place, count in counts.items()]
    answers = selection.mean_of(contest.answers, counts)
    measure = scoring.ERRORS[contest.metric]
    if measure(apart.tempered, truth) >= measure(apart.plain, truth):
        return EnsembleChoice(parts, None, apart.plain)
    temperature = tempering.find_temperature(answers, truth)
    return EnsembleChoice(parts, temperature, apart.tempered)


def _write(db: Database, target: names.TargetTable, contest: Contest, chosen: EnsembleChoice) -> None:
    """Write the result tables of a single model, or those of models of groups."""
    heat = chosen.temperature
    net = join_nets(db, chosen.nets, None if heat is None else joining.Tempering(heat, scoring.LEAST))
    weights = net.join([part.model.weights() for part, _ in chosen.nets])
    _check_joined(db, contest.judging, chosen, (net.model_arch, weights))
    folds = len(chosen.parts[0][0].parts)
    parts = ", ".join(f"{one.key}: {share:.3g}" for one, share in chosen.parts)
    in_folds = "" if folds == 1 else f" in {folds} folds"
    of_what = f"{contest.best.holder.name}{in_folds}{chosen.shown_temperature}"
    description = f"ensemble of {of_what}, by mst_key: {parts}"
    if contest.groups is not None:
        members = [one for one, _ in chosen.parts]
        made = GroupEnsemble(net, members, contest.groups, chosen.apart, description)
        write_tables(db, target, contest, made)
        return
    first, summary = chosen.nets[0][0].found, contest.about
    about = names.target(db, target.schema, target.name + "_summary")
    types = contest.summary.class_value_types
    of_model, of_summary = results.columns_of_one(types)
    results.create(db, target, of_model)
    results.create(db, about, of_summary if folds == 1 else [*of_summary, results.FOLDS])
    results.add_single_model(db, target.quoted, output.field(db, 1, weights), net.model_arch)
    known = dict(of_summary)
    row = {
        **{name: value for name, value in summary.items() if name in known and name not in types},
        "model": target.quoted,
        "qualified_names": contest.name_tables(model=target.quoted),
        "model_id": first.selected.model_id,
        "compile_params": first.selected.compile_params,
        "fit_params": first.selected.fit_params,
        "description": description,
        "model_type": "madlib_keras",
        "model_size": len(weights) / 1024,
        "backend": first.backend,
        **_measured(contest, chosen),
        **({} if folds == 1 else {results.FOLDS[0]: folds}),
    }
    results.add_summary(db, about.quoted, row, types, contest.summary.class_values)


def _measured(contest: Contest, chosen: EnsembleChoice) -> dict[str, Any]:
    """Return the loss and the metric of an ensemble for its summary.

    They are measured on rows that did not choose: on each half of the rows, with an ensemble that the other
    half has chosen.
    """
    metric = contest.metric
    error = scoring.ERRORS[metric](chosen.apart, contest.judging.truth)
    return {
        "validation_table": contest.rows.quoted,
        "loss_type": contest.loss_type,
        "validation_loss_final": contest.measure_loss(chosen.apart, slice(None)),
        "metrics_type": [metric],
        "validation_metrics_final": scoring.shown(metric, error),
    }


def _check_joined(
    db: Database, judging: comparing.JudgingRows, chosen: EnsembleChoice, net: tuple[str, bytes]
) -> None:
    """Raise an error if the joined net does not answer as the mean of its parts does."""
    model_arch, weights = net
    some = np.arange(min(len(judging.truth), CHECKED_ROWS))
    joined = replace(chosen.nets[0][0].model, model_arch=model_arch, weights=lambda: weights)
    mean = np.sum([share * judging.answer(db, one.model, some) for one, share in chosen.nets], axis=0)
    expected = mean if chosen.temperature is None else tempering.temper(mean, chosen.temperature)
    apart = np.abs(judging.answer(db, joined, some) - expected)
    largest = 1 if judging.is_classes else np.abs(expected).max()
    if (apart > comparing.NEAR_ONE * largest).any():
        keys = ", ".join(str(one.key) for one, _ in chosen.parts)
        raise CerebroError(
            f"the nets of mst_key {keys} cannot be joined: the joined net does not answer with their mean",
            sqlstate=NOT_SUPPORTED,
        )
