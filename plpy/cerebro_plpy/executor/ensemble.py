"""cerebro.ensemble: the models of a table whose mean answers best, joined to one net."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, NULL_NOT_ALLOWED, WRONG_STATE, CerebroError
from cerebro_plpy.executor import comparing, nets, output
from cerebro_plpy.executor import request as requests
from cerebro_plpy.nets import joining
from cerebro_plpy.predicting import belonging, models, of_packed, selection, trained
from cerebro_plpy.predicting.holders import TrainedModel
from cerebro_plpy.store import interrupts, names, packed, results

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
class Candidate:
    """A model of the table, and its answers for the rows that choose."""

    found: TrainedModel
    model: models.Model
    answers: np.ndarray


@dataclass(frozen=True)
class EnsembleChoice:
    """The models that are in, with their shares, and how well they and the best of them answer."""

    inputs: Sequence[np.ndarray]
    # What the ensemble answers for the rows that chose.
    answers: np.ndarray
    parts: Sequence[tuple[Candidate, float]]
    metric: str
    value: float
    best_alone: float


def ensemble(db: Database, call: EnsembleCall) -> list[EnsembleShare]:
    """Write the ensemble's tables; return the key and the share of each model that is in it."""
    size = _check_size(call.size)
    target = names.target_table(db, call.output_table, suffixes=("_summary",))
    best = trained.find_model(db, call.model_table, None)
    if best.mst_key is None:
        raise CerebroError(
            f"{best.holder.name} holds a single model",
            hint="Name a table of madlib_fit_multiple_model, of a search or of cerebro.train.",
            sqlstate=WRONG_STATE,
        )
    summary = best.holder.summary(db)
    rows = _choosing_rows(db, call, best, summary)
    judging = comparing.read_rows(db, rows)
    chosen = _choose(db, best, judging, selection.check_metric(call.metric, judging.is_classes), size)
    _write(db, target, best, rows.summary, summary, chosen)
    _tell(db, target, chosen)
    return [(int(one.found.mst_key or 0), share) for one, share in chosen.parts]


def _check_size(size: int | None) -> int:
    if size is None:
        raise CerebroError("size is NULL", sqlstate=NULL_NOT_ALLOWED)
    if not 1 <= size <= MOST:
        raise CerebroError(f"size is {size}, it must be from 1 to {MOST}")
    return size


def _choosing_rows(
    db: Database, call: EnsembleCall, best: TrainedModel, summary: Mapping[str, Any]
) -> requests.Data:
    named = call.packed_table or results.named_table(summary, "validation_table")
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


def _qualified(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    found = summary.get("qualified_names")
    return found if isinstance(found, Mapping) else {}


def _choose(
    db: Database, best: TrainedModel, judging: comparing.JudgingRows, metric: str, size: int
) -> EnsembleChoice:
    candidates = list(_candidates(db, best, judging))
    if not candidates:
        raise CerebroError(f"no model of {best.holder.name} answers with numbers", sqlstate=WRONG_STATE)
    for one in candidates:
        judging.check(one.answers, f"mst_key {one.found.mst_key}")
    answers = np.stack([one.answers for one in candidates])
    counts, error = selection.choose(answers, judging.truth, metric, size)
    alone = min(selection.ERRORS[metric](one, judging.truth) for one in answers)
    total = sum(counts.values())
    return EnsembleChoice(
        inputs=judging.inputs,
        answers=np.sum([answers[place] * count / total for place, count in counts.items()], axis=0),
        parts=[(candidates[place], count / total) for place, count in counts.items()],
        metric=metric,
        value=selection.shown(metric, error),
        best_alone=selection.shown(metric, alone),
    )


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


def _write(
    db: Database,
    target: names.TargetTable,
    best: TrainedModel,
    rows: packed.PackedSummary,
    summary: Mapping[str, Any],
    chosen: EnsembleChoice,
) -> None:
    """Write the tables of a single model, which all functions that predict take."""
    first = chosen.parts[0][0].found
    model_arch, weights = _joined(db, chosen.parts)
    _check_joined(db, chosen, model_arch, weights)
    about = names.target(db, target.schema, target.name + "_summary")
    types = rows.class_value_types
    for table, columns in zip((target, about), results.columns_of_one(types), strict=True):
        results.create(db, table, columns)
    results.add_single_model(db, target.quoted, output.field(db, 1, weights), model_arch)
    known = dict(results.columns_of_one(types)[1])
    parts = ", ".join(f"{one.found.mst_key}: {share:.3g}" for one, share in chosen.parts)
    row = {
        **{name: value for name, value in summary.items() if name in known and name not in types},
        "model": target.quoted,
        "qualified_names": {**_qualified(summary), "model": target.quoted},
        "model_id": first.selected.model_id,
        "compile_params": first.selected.compile_params,
        "fit_params": first.selected.fit_params,
        "description": f"ensemble of {best.holder.name}, by mst_key: {parts}",
        "model_type": "madlib_keras",
        "model_size": len(weights) / 1024,
        "backend": first.backend,
    }
    results.add_summary(db, about.quoted, row, types, rows.class_values)


def _joined(db: Database, parts: Sequence[tuple[Candidate, float]]) -> tuple[str, bytes]:
    """Return the net whose output is the weighted mean, and its weights."""
    # Configs of a run share a few architectures.
    known = {arch: nets.list_layers(db, arch) for arch in {one.model.model_arch for one, _ in parts}}
    listed = [known[one.model.model_arch] for one, _ in parts]
    own = [_by_layer(one, layers) for (one, _), (_, layers) in zip(parts, listed, strict=True)]
    found = joining.join([text for text, _ in listed], [share for _, share in parts], "ensemble")
    checked, layers = nets.list_layers(db, found)
    pieces: list[bytes] = []
    for name, _, _, count, _ in layers:
        place = joining.layer_name(name)
        if count and place is not None:
            pieces.append(own[place[0] - 1][place[1]])
    return checked, b"".join(pieces)


def _check_joined(db: Database, chosen: EnsembleChoice, model_arch: str, weights: bytes) -> None:
    """Refuse a joined net that does not answer as the mean of its parts does."""
    joined = replace(chosen.parts[0][0].model, model_arch=model_arch, weights=lambda: weights)
    (found,) = of_packed.answers(db, joined, chosen.inputs, partial(interrupts.tick, db))
    apart = np.abs(found.reshape(len(found), -1) - chosen.answers)
    if (apart > comparing.NEAR_ONE * (1 + np.abs(chosen.answers))).any():
        keys = ", ".join(str(one.found.mst_key) for one, _ in chosen.parts)
        raise CerebroError(
            f"the nets of mst_key {keys} cannot be joined: one net of them answers otherwise than their mean",
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
            f"the weights of mst_key {one.found.mst_key} are not those of its layers in turn",
            detail=f"There are {len(weights)} bytes, and the layers have {first}.",
            sqlstate=NOT_SUPPORTED,
        )
    return found


def _tell(db: Database, target: names.TargetTable, chosen: EnsembleChoice) -> None:
    count = len(chosen.parts)
    db.notice(
        f"{target.quoted} is the mean of {count} model{'s' if count > 1 else ''}: {chosen.metric}"
        f" {chosen.value:.4g} on"
        f" the {len(chosen.answers)} rows that chose them, {chosen.best_alone:.4g} of the best alone"
    )
