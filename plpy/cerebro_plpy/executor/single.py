"""madlib_fit: a run of one config, with MADlib's tables for a single model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.executor import background, fit, output, replay
from cerebro_plpy.executor import request as requests
from cerebro_plpy.executor import run as runner
from cerebro_plpy.logical.options import FitOptions, parse_fit_options
from cerebro_plpy.predicting.trained import ONLY
from cerebro_plpy.store import functions as registry
from cerebro_plpy.store import models, results, session
from cerebro_plpy.store.names import Table, TargetTable, resolve_table
from cerebro_plpy.topology.choose import choose
from cerebro_plpy.topology.inline import RunCommand

SUFFIXES = ("_summary",)


@dataclass(frozen=True)
class SingleCall:
    """The arguments of madlib_keras_fit, as they come."""

    source_table: str | None
    model: str | None
    model_arch_table: str | None
    model_id: int | None
    compile_params: str | None
    fit_params: str | None
    num_iterations: int | None
    use_gpus: bool | None
    validation_table: str | None
    metrics_compute_frequency: int | None
    warm_start: bool | None
    name: str | None
    description: str | None
    object_table: str | None
    options: str | None
    search_path: str


def fit_single(db: Database, call: SingleCall, run_inline: RunCommand) -> None:
    """Train one config."""
    requests.check_writable(db)
    given = parse_fit_options(call.options)
    before = fit.earlier_run(db, call.model, call.search_path, SUFFIXES) if call.warm_start else None
    registry.begin(db, before or given.replay)
    request = _request(db, call, given)
    requests.tell_what_is_left_out(db, [c.fit_params for c in request.configs])
    order = replay.order(db, request)
    earlier = fit.earlier_tables(db, call.model, call.search_path, SUFFIXES) if call.warm_start else None
    model, summary = fit.targets(db, call.model, call.search_path, SUFFIXES, earlier)
    topology = choose(db, session.current_user(db), request.tables, run_inline)
    described = runner.check(db, topology, request, sessions=1 if given.background else None)
    start = runner.Start(fit.arch_weights(request))
    if earlier is not None:
        start = _warm_start(db, earlier, request, start)
    if given.background:
        background.begin(
            db,
            topology=topology,
            request=request,
            described=described,
            start=start,
            kind=runner.SINGLE,
            model_table=model.quoted,
        )
        return
    if earlier is None:
        create_tables(db, [model, summary], request)

    def write(outcome: runner.Outcome) -> None:
        write_tables(db, request, [model, summary], earlier is not None, outcome)

    runner.perform(
        db,
        topology=topology,
        request=request,
        described=described,
        start=start,
        write=write,
        kind=runner.SINGLE,
        model_table=model.quoted,
        order=order,
    )


def create_tables(db: Database, tables: Sequence[TargetTable], request: requests.Request) -> None:
    results.create_single(db, tables[0], tables[1], request.source.summary.class_value_types)


def write_tables(
    db: Database,
    request: requests.Request,
    tables: Sequence[TargetTable],
    replace: bool,
    outcome: runner.Outcome,
) -> None:
    """Fill the two tables; those of an earlier run are replaced."""
    model, summary = tables
    step = _last_step(outcome)
    if replace:
        results.drop(db, [table.quoted for table in tables])
        create_tables(db, tables, request)
    _write(db, request=request, outcome=outcome, model=model, summary=summary, step=step)


def _request(db: Database, call: SingleCall, given: FitOptions) -> requests.Request:
    epochs, frequency = requests.budget(call.num_iterations, call.metrics_compute_frequency, given)
    path = call.search_path
    source, validation = requests.training_and_validation(db, call.source_table, call.validation_table, path)
    arch_table = resolve_table(db, call.model_arch_table, path, "model architecture table")
    if call.model_id is None or call.compile_params is None:
        raise CerebroError("model_id and compile_params cannot be NULL", sqlstate=NULL_NOT_ALLOWED)
    only = models.Selected(ONLY, call.model_id, call.compile_params, call.fit_params or "")
    configs = requests.choose([only])
    architectures = models.architectures(db, arch_table, [call.model_id])
    engines = requests.engines(db, given, bool(call.use_gpus), source.summary.segments)
    return requests.Request(
        source=source,
        validation=validation,
        arch_table=arch_table,
        architectures=architectures,
        configs=configs,
        epochs=epochs,
        metrics_frequency=frequency,
        seed=replay.seed(db, given),
        engines=engines,
        name=call.name,
        description=call.description,
        selection_table=None,
        warm_start=bool(call.warm_start),
        search=requests.early_stopping(given, configs, epochs, frequency),
        limits=given.limits,
        object_table=requests.object_table(db, call.object_table, path),
        spelled=requests.spelled(
            call.model,
            source_table=call.source_table,
            validation_table=call.validation_table,
            model_arch_table=call.model_arch_table,
        ),
    )


def _warm_start(
    db: Database, earlier: list[Table], request: requests.Request, cold: runner.Start
) -> runner.Start:
    model, summary = earlier
    row = results.summary_row(db, summary.quoted)
    if row.get("model_id") != request.configs[0].model_id:
        return cold
    states = runner.kept_states(db, row.get("run_id"))
    if ONLY in states:
        return runner.Start(cold.weights, {ONLY: states[ONLY]})
    db.notice("it goes on from its weights alone: the state of the earlier run is gone")
    own = runner.weights_of(model.quoted, None, None, request.configs[0].model_id, ONLY)
    return runner.Start([*cold.weights, own])


def _last_step(outcome: runner.Outcome) -> int:
    """Where the model's state is; an error if there is none."""
    ended = outcome.ended.get(ONLY)
    if ended is None or ended.step is None:
        reason = ended.reason if ended is not None and ended.reason else "it has finished no epoch"
        raise CerebroError(f"the model could not be trained: {reason}", detail=f"It is run {outcome.run_id}.")
    return ended.step


def _write(
    db: Database,
    request: requests.Request,
    outcome: runner.Outcome,
    model: TargetTable,
    summary: TargetTable,
    step: int,
) -> None:
    weights = output.some_weights(db, outcome.run_id, {ONLY: step})[ONLY]
    config = request.configs[0]
    results.add_single_model(
        db, model.quoted, output.field(db, ONLY, weights), outcome.model_arch[config.model_id]
    )
    row: dict[str, Any] = {
        **fit.summary_row(db, request, outcome, {"model": model}),
        "model_id": config.model_id,
        "compile_params": config.compile_params,
        "fit_params": config.fit_params,
        "model_type": "madlib_keras",
        "backend": request.engines.backend,
        **output.history(config, outcome, len(weights)),
    }
    packed = request.source.summary
    results.add_summary(db, summary.quoted, row, packed.class_value_types, packed.class_values)
