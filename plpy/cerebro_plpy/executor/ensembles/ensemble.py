"""cerebro.ensemble: the models of a table whose mean answers best, joined to one net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, NULL_NOT_ALLOWED, WRONG_STATE, CerebroError
from cerebro_plpy.executor.calls import comparing, nets, standings
from cerebro_plpy.executor.calls.contest import Candidate, Contest, open_contest
from cerebro_plpy.executor.running import output
from cerebro_plpy.nets import joining
from cerebro_plpy.predicting import selection, tempering
from cerebro_plpy.predicting.answering import of_packed
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.examining.scoring import LOGLOSS, RMSE
from cerebro_plpy.store import names
from cerebro_plpy.store.runs import results

SIZE = 25
MOST = 1000
SUFFIX = "_ensemble"
EnsembleShare = tuple[int, float]


@dataclass(frozen=True)
class EnsembleCall:
    """The arguments of cerebro.ensemble, unchecked."""

    model_table: str | None
    output_table: str | None
    size: int | None = SIZE
    metric: str | None = None
    packed_table: str | None = None


@dataclass(frozen=True)
class EnsembleChoice:
    """The models that are in, with their shares, and the temperature, if there is one."""

    parts: Sequence[tuple[Candidate, float]]
    temperature: float | None
    # For the rows that chose.
    answers: np.ndarray
    # For the same rows, but of each half what the other half chose.
    apart: np.ndarray

    @property
    def shown_temperature(self) -> str:
        return "" if self.temperature is None else f" at temperature {self.temperature:.3g}"


def ensemble(db: Database, call: EnsembleCall) -> list[EnsembleShare]:
    """Write the ensemble's tables; return the key and the share of each model that is in it."""
    size = _check_size(call.size)
    target = names.target_table(db, call.output_table, suffixes=("_summary",))
    contest = open_contest(db, call.model_table, call.packed_table, call.metric)
    if not contest.candidates:
        name = contest.best.holder.name
        raise CerebroError(f"no model of {name} answers with numbers", sqlstate=WRONG_STATE)
    chosen = _choose(contest, size)
    _write(db, target, contest, chosen)
    count = len(chosen.parts)
    what = f"{target.quoted} is the mean of {count} model{'s' if count > 1 else ''}{chosen.shown_temperature}"
    standings.tell_ensemble(db, contest, chosen.apart, what)
    return [(int(one.found.mst_key or 0), share) for one, share in chosen.parts]


def _check_size(size: int | None) -> int:
    if size is None:
        raise CerebroError("size is NULL", sqlstate=NULL_NOT_ALLOWED)
    if not 1 <= size <= MOST:
        raise CerebroError(f"size is {size}, it must be from 1 to {MOST}")
    return size


def _qualified(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    found = summary.get("qualified_names")
    return found if isinstance(found, Mapping) else {}


def _choose(contest: Contest, size: int) -> EnsembleChoice:
    """Have all rows choose; a temperature is set if it helps rows that did not choose it."""
    truth, apart = contest.judging.truth, contest.answer_apart(size)
    counts, _ = selection.choose(contest.answers, truth, contest.metric, size, contest.tick)
    total = sum(counts.values())
    parts = [(contest.candidates[place], count / total) for place, count in counts.items()]
    answers = selection.mean_of(contest.answers, counts)
    measure = scoring.ERRORS[contest.metric]
    if measure(apart.tempered, truth) >= measure(apart.plain, truth):
        return EnsembleChoice(parts, None, answers, apart.plain)
    temperature = tempering.find_temperature(answers, truth)
    return EnsembleChoice(parts, temperature, tempering.temper(answers, temperature), apart.tempered)


def _write(db: Database, target: names.TargetTable, contest: Contest, chosen: EnsembleChoice) -> None:
    """Write the tables of a single model, which all functions that predict take."""
    first, summary = chosen.parts[0][0].found, contest.about
    model_arch, weights = _joined(db, chosen)
    _check_joined(db, contest, chosen, (model_arch, weights))
    about = names.target(db, target.schema, target.name + "_summary")
    types = contest.summary.class_value_types
    for table, columns in zip((target, about), results.columns_of_one(types), strict=True):
        results.create(db, table, columns)
    results.add_single_model(db, target.quoted, output.field(db, 1, weights), model_arch)
    known = dict(results.columns_of_one(types)[1])
    parts = ", ".join(f"{one.found.mst_key}: {share:.3g}" for one, share in chosen.parts)
    of_what = f"{contest.best.holder.name}{chosen.shown_temperature}"
    row = {
        **{name: value for name, value in summary.items() if name in known and name not in types},
        "model": target.quoted,
        "qualified_names": {
            **_qualified(summary),
            "model": target.quoted,
            "validation_table": contest.rows.quoted,
        },
        "model_id": first.selected.model_id,
        "compile_params": first.selected.compile_params,
        "fit_params": first.selected.fit_params,
        "description": f"ensemble of {of_what}, by mst_key: {parts}",
        "model_type": "madlib_keras",
        "model_size": len(weights) / 1024,
        "backend": first.backend,
        **_measured(contest, chosen),
    }
    results.add_summary(db, about.quoted, row, types, contest.summary.class_values)


def _measured(contest: Contest, chosen: EnsembleChoice) -> dict[str, Any]:
    """Return loss and metric on the rows that chose, of each half by what the other half chose."""
    loss, metric = (LOGLOSS if contest.judging.is_classes else RMSE), contest.metric
    errors = {name: scoring.ERRORS[name](chosen.apart, contest.judging.truth) for name in (loss, metric)}
    return {
        "validation_table": contest.rows.quoted,
        "loss_type": "categorical_crossentropy" if loss == LOGLOSS else "mse",
        "validation_loss_final": errors[loss] if loss == LOGLOSS else errors[loss] ** 2,
        "metrics_type": [metric],
        "validation_metrics_final": scoring.shown(metric, errors[metric]),
    }


def _joined(db: Database, chosen: EnsembleChoice) -> tuple[str, bytes]:
    """Return the net whose output is the weighted mean, and its weights."""
    parts, temperature = chosen.parts, chosen.temperature
    # Configs of a run share a few architectures.
    known = {arch: nets.list_layers(db, arch) for arch in {one.model.model_arch for one, _ in parts}}
    listed = [known[one.model.model_arch] for one, _ in parts]
    own = [_by_layer(one, layers) for (one, _), (_, layers) in zip(parts, listed, strict=True)]
    tempering_of = None if temperature is None else joining.Tempering(temperature, scoring.LEAST)
    shares = [share for _, share in parts]
    found = joining.join([text for text, _ in listed], shares, "ensemble", tempering_of)
    checked, layers = nets.list_layers(db, found)
    pieces: list[bytes] = []
    for name, _, _, count, _ in layers:
        place = joining.layer_name(name)
        if count and place is not None:
            pieces.append(own[place[0] - 1][place[1]])
    return checked, b"".join(pieces)


def _check_joined(db: Database, contest: Contest, chosen: EnsembleChoice, net: tuple[str, bytes]) -> None:
    """Refuse a joined net that does not answer as the mean of its parts does."""
    model_arch, weights = net
    joined = replace(chosen.parts[0][0].model, model_arch=model_arch, weights=lambda: weights)
    (found,) = of_packed.answers(db, joined, contest.judging.inputs, contest.tick)
    apart = np.abs(found.reshape(len(found), -1) - chosen.answers)
    if (apart > comparing.NEAR_ONE * (1 + np.abs(chosen.answers))).any():
        keys = ", ".join(str(one.found.mst_key) for one, _ in chosen.parts)
        raise CerebroError(
            f"the nets of mst_key {keys} cannot be joined: the joined net does not answer with their mean",
            sqlstate=NOT_SUPPORTED,
        )


def _by_layer(one: Candidate, layers: Sequence[tuple[Any, ...]]) -> Mapping[str, bytes]:
    """Return the weights of each layer of a net."""
    weights, found, first = one.model.weights(), dict[str, bytes](), 0
    for name, _, _, count, _ in layers:
        found[name] = weights[first : first + 4 * count]
        first += 4 * count
    if first != len(weights):
        raise CerebroError(
            f"the weights of mst_key {one.found.mst_key} do not fit its layers",
            detail=f"There are {len(weights)} bytes, and the layers have {first}.",
            sqlstate=NOT_SUPPORTED,
        )
    return found
