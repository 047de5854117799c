"""Write the result tables of a run, in the caller's own transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.engine import state as states
from cerebro_plpy.executor.running.run import Ended, Outcome
from cerebro_plpy.executor.starting import groups
from cerebro_plpy.executor.starting.request import Chosen, Request
from cerebro_plpy.logical.metrics import deciding
from cerebro_plpy.madlib.params import Call
from cerebro_plpy.madlib.spaces.render import render_value
from cerebro_plpy.madlib.spellings import TOP_K
from cerebro_plpy.store import session
from cerebro_plpy.store.names import TargetTable
from cerebro_plpy.store.packed.groups import FALLBACK, Groups
from cerebro_plpy.store.runs import measurements, results, state_rows

# The most bytes that fit a field, with room for the rest of the row.
LARGEST_FIELD = 2**30 - 2**20
# The most bytes of weights of several configs that one statement reads.
AT_ONCE = 64 * 2**20


@dataclass(frozen=True)
class Targets:
    """The result tables of a run of many configs."""

    model: TargetTable
    info: TargetTable
    summary: TargetTable


def write_models(db: Database, targets: Targets, request: Request, outcome: Outcome) -> dict[int, int]:
    """Write a row for each config that has a state; return the size of each config's weights in bytes.

    In cross-validation, models that leave out a fold are written only if the option `cross_validate` says so.
    """
    sizes: dict[int, int] = {}
    steps = {
        key: ended.step
        for key, ended in outcome.ended.items()
        if ended.step is not None and (ended.config.fold is None or request.limits.fold_models)
    }
    while steps:
        some = some_weights(db, outcome.run_id, steps)
        if request.groups is not None:
            _write_models_of_groups(
                db, targets, request.groups, outcome=outcome, some=some, segments=request.segments
            )
            sizes |= {key: len(weights) for key, weights in some.items()}
            for key in some:
                del steps[key]
            continue
        for mst_key, weights in some.items():
            sizes[mst_key] = len(weights)
            model_arch = outcome.model_arch[outcome.ended[mst_key].config.model_id]
            results.add_model(
                db,
                quoted=targets.model.quoted,
                mst_key=shown_key(request, outcome.ended[mst_key].config),
                weights=field(db, mst_key, weights),
                model_arch=model_arch,
                key=mst_key % request.segments,
            )
            del steps[mst_key]
    return sizes


def shown_key(request: Request, config: Chosen) -> int:
    """Return a config's `mst_key` in the result tables.

    If models of folds are kept, each has a key of its own; otherwise it is the key that the user knows.
    """
    return config.mst_key if request.limits.fold_models else config.key


def _write_models_of_groups(
    db: Database,
    targets: Targets,
    found: Groups,
    outcome: Outcome,
    some: Mapping[int, bytes],
    segments: int,
) -> None:
    configs = [outcome.ended[key].config for key in some]
    results.add_models_of_groups(
        db,
        quoted=targets.model.quoted,
        columns=list(found.types),
        keys=[config.key for config in configs],
        groups=[None if config.group_id is None else found.rows[config.group_id].key for config in configs],
        weights=[field(db, key, weights) for key, weights in some.items()],
        nets=[outcome.model_arch[config.model_id] for config in configs],
        places=[key % segments for key in some],
    )


@as_owner
def some_weights(db: Database, run_id: int, steps: Mapping[int, int]) -> dict[int, bytes]:
    """Return the weights at the given `steps` of as many configs as fit in memory at once, by `mst_key`."""
    found: dict[int, bytes] = {}
    filled, frozen = 0, states.finder(partial(state_rows.frozen, db, run_id))
    for mst_key, parts in state_rows.read_several(db, run_id, steps):
        found[mst_key] = states.weights(states.of_config(parts, run_id, mst_key, steps[mst_key], frozen))
        filled += len(found[mst_key])
        if filled >= AT_ONCE:
            return found
    for mst_key in steps.keys() - found.keys():
        states.of_config((), run_id, mst_key, steps[mst_key])
    return found


def field(db: Database, mst_key: int, weights: bytes) -> bytes | None:
    if len(weights) <= LARGEST_FIELD:
        return weights
    db.warning(
        f"the weights of config {mst_key} ({len(weights)} bytes) are too large for a field:"
        " model_weights is NULL, and the state of the run keeps them"
    )
    return None


def write_info(
    db: Database, targets: Targets, request: Request, outcome: Outcome, sizes: Mapping[int, int]
) -> None:
    rows = [info_row(request, outcome, ended, sizes.get(key)) for key, ended in outcome.ended.items()]
    results.add_rows(db, targets.info.quoted, [*rows, *groups_left_out(request, outcome)])


def groups_left_out(request: Request, outcome: Outcome) -> Iterator[dict[str, Any]]:
    """Yield an info row for each config on each group that was not trained, for lack of rows or classes."""
    configs = {ended.config.key: ended.config for ended in outcome.ended.values()}
    for number, reason in groups.left_out(request).items():
        for key, config in configs.items():
            yield {
                **_group_columns(request, number),
                "mst_key": key,
                "model_id": config.model_id,
                "compile_params": config.compile_params,
                "fit_params": config.fit_params,
                "status": "left out",
                "reason": reason,
            }


def _group_columns(request: Request, number: int | None) -> dict[str, Any]:
    if request.groups is None:
        return {}
    values = dict.fromkeys(request.groups.types) if number is None else request.groups.rows[number].values
    return {**values, FALLBACK: number is None}


def info_row(request: Request, outcome: Outcome, ended: Ended, size: int | None) -> dict[str, Any]:
    config = ended.config
    return {
        **({results.FOLD: config.fold} if request.cross_validates else {}),
        **({results.CONFIG_KEY: config.key} if request.limits.fold_models else {}),
        **_group_columns(request, config.group_id),
        "mst_key": shown_key(request, config),
        "model_id": config.model_id,
        "compile_params": config.compile_params,
        "fit_params": config.fit_params,
        "model_type": "madlib_keras",
        **history(config, outcome, size, epoch_of(request, ended)),
        "status": ended.status,
        "reason": ended.reason,
        "backend": request.engines.find_engine(config.model_id),
    }


def epoch_of(request: Request, ended: Ended) -> int | None:
    """Return the epoch of the state in the result tables, or None if the config left no state."""
    return None if ended.step is None else ended.step // request.segments


def history(config: Chosen, outcome: Outcome, size: int | None, epoch: int | None = None) -> dict[str, Any]:
    """Return a config's loss and first metric after each evaluated epoch, in MADlib's columns.

    The final values are those after `epoch`; without `epoch`, those after the last evaluated epoch.
    """
    rows = outcome.metrics_of(config.mst_key)
    params = outcome.params_of(config.compile_params)
    found: dict[str, Any] = {
        "model_size": None if size is None else size / 1024,
        "metrics_elapsed_time": _elapsed(rows),
        "metrics_type": [_text(metric) for metric in _flat(params.metrics)] or None,
        "loss_type": _text(params.loss),
    }
    for dataset in ("training", "validation"):
        mine = [row for row in rows if row.dataset == dataset]
        metric = deciding([row.metric for row in mine])
        losses = {row.epoch: row.value for row in mine if row.metric == "loss"}
        values = {row.epoch: row.value for row in mine if row.metric == metric} if metric != "loss" else {}
        found |= {
            f"{dataset}_metrics_final": _final(values, epoch),
            f"{dataset}_loss_final": _final(losses, epoch),
            f"{dataset}_metrics": list(values.values()) or None,
            f"{dataset}_loss": list(losses.values()) or None,
        }
    return found


def _final(values: Mapping[int, float | None], epoch: int | None) -> float | None:
    """Return the value after `epoch`, or else the last value. The values must be sorted by epoch."""
    last = next(reversed(list(values.values())), None)
    return last if epoch is None else values.get(epoch, last)


def _flat(metrics: object) -> list[Any]:
    if isinstance(metrics, dict):
        metrics = list(metrics.values())
    if isinstance(metrics, list):
        return [one for metric in metrics for one in _flat(metric)]
    return [] if metrics is None else [metrics]


def _text(named: Any) -> str:
    if isinstance(named, Call):
        given = str(dict(named.kwargs).get("name", ""))
        if named.function is not None and not named.kwargs:
            return named.name
        if TOP_K.fullmatch(given):
            return given
    return named if isinstance(named, str) else render_value(named)


def _elapsed(rows: Sequence[measurements.MetricRow]) -> list[float]:
    """Return the seconds from the start of training to the end of each evaluation."""
    epochs = sorted({row.epoch for row in rows})
    return [max(row.elapsed_seconds for row in rows if row.epoch == epoch) for epoch in epochs]


def metrics_iters(outcome: Outcome, mst_key: int | None = None) -> list[int]:
    """Return the epochs after which the config `mst_key`, or any config if it is None, was evaluated."""
    return sorted({row.epoch for row in outcome.metrics if mst_key in (None, row.mst_key)})


def _names(request: Request, tables: Mapping[str, TargetTable]) -> dict[str, str | None]:
    """Return the names of a run's tables, by the summary columns that hold them."""
    validation, selection = request.validation, request.selection_table
    return {
        "source_table": request.source.table.quoted,
        "validation_table": validation.table.quoted if validation else None,
        "model_arch_table": request.arch_table.quoted,
        **({} if selection is None else {"model_selection_table": selection}),
        **{column: table.quoted for column, table in tables.items()},
    }


def summary_row(
    db: Database, request: Request, outcome: Outcome, tables: Mapping[str, TargetTable]
) -> dict[str, Any]:
    """Return the values that every summary has; `tables` are the run's tables, by summary column."""
    packed = request.source.summary
    times = measurements.times(db, outcome.run_id)
    names = _names(request, tables)
    return {
        **{column: name and request.spelled.get(column, name) for column, name in names.items()},
        "qualified_names": {column: name for column, name in names.items() if name is not None},
        "dependent_varname": list(packed.dependent_varname),
        "independent_varname": list(packed.independent_varname),
        "object_table": request.object_table,
        "num_iterations": request.epochs,
        "metrics_compute_frequency": request.metrics_frequency,
        "name": request.name,
        "description": request.description,
        "start_training_time": times["started"],
        "end_training_time": times["ended"],
        "madlib_version": f"cerebro {session.version(db)}",
        "num_classes": packed.num_classes,
        "dependent_vartype": list(packed.dependent_vartype),
        "normalizing_const": packed.normalizing_const,
        "metrics_iters": metrics_iters(outcome),
        "run_id": outcome.run_id,
        "seed": request.seed,
        "segments": request.segments,
        "feature_specification": packed.feature_specification and json.loads(packed.feature_specification),
    }


def write_summary(db: Database, summary: TargetTable, request: Request, row: Mapping[str, Any]) -> None:
    packed_rows = request.source.summary
    results.add_summary(db, summary.quoted, row, packed_rows.class_value_types, packed_rows.class_values)
