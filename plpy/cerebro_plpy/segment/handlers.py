"""The handlers of commands: one function for each command (`commands.py`).

Commands that need an engine or rows are carried out where a segment's rows are, all others where the tables
are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from cerebro_plpy import memory
from cerebro_plpy.commands import (
    TABLES,
    Average,
    BesideRows,
    Check,
    CheckFunctions,
    CheckModel,
    Command,
    ConfigCommand,
    CreateRun,
    Decide,
    DeleteRun,
    DropStates,
    EndRun,
    Engine,
    Evaluate,
    FailConfig,
    GiveBack,
    HandRows,
    HoldRun,
    LeaveMetrics,
    LetGo,
    Merge,
    NextRunId,
    Probe,
    ResumeRun,
    Sent,
    StartEngine,
    StartingWeights,
    TellEpochs,
    TellFacts,
    Visit,
    VisitBundle,
    WeightsOfGroups,
)
from cerebro_plpy.database import Database
from cerebro_plpy.planner import gpus
from cerebro_plpy.store import session
from cerebro_plpy.store.models import functions, group_models, model_versions, registered_groups
from cerebro_plpy.store.packed.groups import KEY_TEXT, UNIT
from cerebro_plpy.store.runs import (
    decisions,
    drivers,
    forgetting,
    measurements,
    rates,
    results,
    run_groups,
    runs,
    starting_weights,
    state_rows,
)
from cerebro_plpy.store.writing import Writing, write

if TYPE_CHECKING:
    from cerebro_plpy.segment.supply import Supply

CommandResult = Mapping[str, Any]
# The number of groups whose weights are copied together.
GROUPS_AT_ONCE = 1000
# A generator that yields the rows that a command writes, and returns its answer.
Writes = Generator[Sequence[Writing], None, CommandResult]


def carry_out(db: Database, sent: Sent) -> CommandResult:
    """Carry out a command that this session has received; return its answer."""
    if sent.way.place == TABLES:
        return AT_TABLES[type(sent.command)](db, sent.command)
    return db.server.carry_out(with_own_gpu(sent))


def with_own_gpu(sent: Sent) -> Sent:
    """Return a command with the GPU share of its own segment in place of the shares of all segments."""
    engine, command = sent.engine, sent.command
    if engine is None or isinstance(engine.use_gpus, bool) or not isinstance(command, BesideRows):
        return sent
    own = gpus.GpuShare(*engine.use_gpus[command.segment % len(engine.use_gpus)])
    if not isinstance(command, ConfigCommand):
        # On Greenplum a command that needs no run's rows, such as the start of the engine, must go to a host
        # that has the GPU.
        command = replace(command, segment=own.content)
    return replace(sent, command=command, engine=replace(engine, use_gpus=True, gpu=own.told()))


def work(supply: Supply, sent: Sent, tell: Callable[[str], None]) -> CommandResult:
    """Carry out a command beside the rows, starting its engine first if it needs one; return its answer.

    `tell` sends a notice to the caller.
    """
    if sent.way.engine and sent.engine is not None:
        start_engine(sent.engine, tell if isinstance(sent.command, StartEngine) else None)
    return BESIDE_ROWS[type(sent.command)](supply, sent.command)


def start_engine(wanted: Engine, tell: Callable[[str], None] | None) -> None:
    from cerebro_plpy.engine.backends import runtime

    if wanted.or_any and runtime.is_started():
        return
    threads = runtime.threads_of(wanted.backend)
    if tell is not None and threads not in (None, wanted.threads):
        # Only the caller's own session can be in this case: it has made predictions, say, before.
        tell(
            f"this session's engine goes on with {threads} threads, not {wanted.threads}:"
            " the last bits of the result may differ"
        )
    gpu = None if wanted.gpu is None else runtime.Gpu(**wanted.gpu)
    runtime.start(wanted.backend, threads or wanted.threads, bool(wanted.use_gpus), gpu, wanted.cache_folder)


def _start(supply: Supply, command: StartEngine) -> CommandResult:
    """Return the reason if compiled programs are not kept, else nothing; `work()` has started the engine."""
    from cerebro_plpy.engine.backends import runtime

    reason = runtime.get_keras_backend().not_kept
    return {} if reason is None else {"not_kept": reason}


def _check(supply: Supply, command: Check) -> CommandResult:
    from cerebro_plpy.segment import checks

    return checks.check(command)


def _check_model(supply: Supply, command: CheckModel) -> CommandResult:
    from cerebro_plpy.segment import checks

    return checks.check_model(command)


def _check_functions(supply: Supply, command: CheckFunctions) -> CommandResult:
    from cerebro_plpy.segment import checks

    return checks.check_functions(command.functions)


def _probe(supply: Supply, command: Probe) -> CommandResult:
    from cerebro_plpy.segment import probing

    return probing.probe(command, supply.ticker())


def _visit(supply: Supply, command: Visit) -> CommandResult:
    from cerebro_plpy.segment import visits

    return visits.visit(supply, command)


def _visit_bundle(supply: Supply, command: VisitBundle) -> CommandResult:
    from cerebro_plpy.segment.bundled import bundles

    return bundles.visit(supply, command)


def _average(supply: Supply, command: Average) -> CommandResult:
    from cerebro_plpy.segment import visits

    return visits.average(supply, command)


def _evaluate(supply: Supply, command: Evaluate) -> CommandResult:
    from cerebro_plpy.segment import evaluations

    return evaluations.evaluate(supply, command)


def _merge(supply: Supply, command: Merge) -> CommandResult:
    from cerebro_plpy.segment import evaluations

    return evaluations.merge(supply, command)


def _give_back(supply: Supply, command: GiveBack) -> CommandResult:
    """Drop a run's rows, states and frozen weights, and return the freed memory to the system.

    Compiled models stay for the next run.
    """
    from cerebro_plpy.segment import kept, rows, visits

    rows.let_go()
    visits.forget()
    memory.get_instance(kept.KeptFrozen).clear()
    memory.trim()
    return {}


def create_run(db: Database, command: CreateRun) -> Writes:
    """Write the rows of a new run, and copy its starting weights, which are read with the caller's rights."""
    # If the run is there already, the session that wrote it was lost before it could answer.
    if runs.last_event(db, command.run.run_id) is None:
        yield from _write_down(db, command)
    if command.behind is not None:
        # Last, because no code of the caller's may run in this session after it.
        yield drivers.hold_new(db, command.run.run_id, command.behind)
    return {}


def _write_down(db: Database, command: CreateRun) -> Generator[Sequence[Writing], None, None]:
    from cerebro_plpy.segment import rows

    # If the caller's session has copied the rows to a file, it has also set the run's versions.
    run = command.run if runs.has_versions(command.run) else rows.with_versions(db, command.run)
    yield runs.creation(db, run, command.architectures, command.configs)
    yield run_groups.creation(run.run_id, command.groups)
    used = [{"digest": digest} for digest in sorted(command.functions)]
    yield runs.inserts("cerebro._run_function", run.run_id, used)
    retention = session.setting(db, "retention_days")
    if retention is not None:
        forgetting.delete_older(db, int(retention))
    for weights in command.weights:
        _copy_weights(db, run, weights)
    for of_groups in command.weights_of_groups:
        _copy_weights_of_groups(db, run, of_groups)


def _copy_weights(db: Database, run: runs.RunRow, source: StartingWeights) -> None:
    place = source.table, source.key_column, source.key
    if source.version_id is not None:
        found = model_versions.weights(db, source.version_id)
    else:
        found = db.as_caller(run.owner, results.weights_from, db, *place)
    starting_weights.add(db, run.run_id, source.model_id, source.mst_key, found)


def _copy_weights_of_groups(db: Database, run: runs.RunRow, source: WeightsOfGroups) -> None:
    if source.version_id is not None:
        held = registered_groups.weights_by_key(db, source.version_id)
        found = {row[UNIT]: held[row[KEY_TEXT]] for row in source.rows}
        starting_weights.add_several(db, run.run_id, source.model_id, found)
        return
    for first in range(0, len(source.rows), GROUPS_AT_ONCE):
        some = source.rows[first : first + GROUPS_AT_ONCE]
        found = db.as_caller(run.owner, group_models.weights_from, db, source.table, source.types, some)
        starting_weights.add_several(db, run.run_id, source.model_id, found)


def _hand_rows(db: Database, command: HandRows) -> CommandResult:
    from cerebro_plpy.segment import handed

    run = handed.hand_over(db, command.run)
    return {"versions": run.versions, "packed_versions": run.packed_versions}


def _next_run_id(db: Database, command: NextRunId) -> CommandResult:
    return {"run_id": runs.next_run_id(db)}


def resume_run(db: Database, command: ResumeRun) -> Writes:
    from cerebro_plpy.segment import mending

    measurements.drop_partial_evaluations(db, command.run_id)
    yield runs.event_of(command.run_id, "running")
    return {"damaged": mending.mend(db, command.run_id, command.evaluation_epochs)}


def hold_run(db: Database, command: HoldRun) -> Writes:
    yield drivers.hold(db, command.run_id, command.behind)
    return {}


def _let_go(db: Database, command: LetGo) -> CommandResult:
    drivers.let_go(db, command.run_id)
    return {}


def end_run(db: Database, command: EndRun) -> Writes:
    run_id = command.run_id

    # Otherwise another session has taken over the run, or the run has never begun.
    if drivers.holds(db, run_id) and runs.last_event(db, run_id) == "running":
        if command.keep is not None:
            state_rows.keep_only(db, run_id, command.keep)
        yield [
            *rates.writings(run_id, command.rates),
            *runs.event_of(run_id, command.event, command.detail),
        ]
    return {}


def fail_config(db: Database, command: FailConfig) -> Writes:
    yield measurements.failure_of(**asdict(command))
    return {}


def decide(db: Database, command: Decide) -> Writes:
    yield decisions.writings(command.run_id, command.entries, command.configs)
    return {}


def drop_states(db: Database, command: DropStates) -> Writes:
    yield [state_rows.dropping(command.run_id, dict(command.keep))]
    return {}


def tell_epochs(db: Database, command: TellEpochs) -> Writes:
    ended = [{"epoch": epoch, "config": mst_key} for mst_key, epoch in command.ended]
    yield [runs.telling(command.run_id, "epoch", ended)]
    return {}


def _tell_facts(db: Database, command: TellFacts) -> CommandResult:
    run_id = command.run_id
    if command.model_id is not None:
        return _tell_weights(db, command)
    configs = runs.configs_among(db, run_id, command.keys)
    nets = {model_id: runs.model_arch(db, run_id, model_id) for model_id in {c.model_id for c in configs}}
    return {
        "run": asdict(runs.run(db, run_id)),
        "configs": [asdict(config) for config in configs],
        "nets": sorted(nets.items()),
        "functions": [dict(row) for row in functions.of_run(db, run_id)],
    }


def _tell_weights(db: Database, command: TellFacts) -> CommandResult:
    own = starting_weights.read_own_weights(db, command.run_id, command.keys)
    every = starting_weights.EVERY_CONFIG
    shared = starting_weights.of_config(db, command.run_id, command.model_id or 0, every)
    return {
        "own": [(key, weights.hex()) for key, weights in own.items()],
        "shared": None if shared is None else shared.hex(),
    }


def _leave_metrics(db: Database, command: LeaveMetrics) -> CommandResult:
    measurements.write_metrics(db, [measurements.Measured(**row) for row in command.measured])
    return {}


def _delete_run(db: Database, command: DeleteRun) -> CommandResult:
    forgetting.delete(db, command.run_id)
    return {}


def _written(steps: Callable[[Database, Any], Writes]) -> Callable[[Database, Any], CommandResult]:
    """Return a handler that writes all rows that `steps` yields, and returns the answer of `steps`."""

    def carry_out(db: Database, command: Command) -> CommandResult:
        work = steps(db, command)
        try:
            while True:
                write(db, next(work))
        except StopIteration as end:
            return end.value

    return carry_out


BESIDE_ROWS: Mapping[type[Command], Callable[[Supply, Any], CommandResult]] = {
    StartEngine: _start,
    Check: _check,
    CheckModel: _check_model,
    CheckFunctions: _check_functions,
    Probe: _probe,
    Visit: _visit,
    VisitBundle: _visit_bundle,
    Average: _average,
    Evaluate: _evaluate,
    Merge: _merge,
    GiveBack: _give_back,
}
# Commands that write rows of runs. On Greenplum a procedure writes these rows (cluster/coordinator.py).
WRITING: Mapping[type[Command], Callable[[Database, Any], Writes]] = {
    CreateRun: create_run,
    HoldRun: hold_run,
    ResumeRun: resume_run,
    EndRun: end_run,
    FailConfig: fail_config,
    Decide: decide,
    DropStates: drop_states,
    TellEpochs: tell_epochs,
}
AT_TABLES: Mapping[type[Command], Callable[[Database, Any], CommandResult]] = {
    **{command: _written(steps) for command, steps in WRITING.items()},
    NextRunId: _next_run_id,
    HandRows: _hand_rows,
    LetGo: _let_go,
    DeleteRun: _delete_run,
    TellFacts: _tell_facts,
    LeaveMetrics: _leave_metrics,
}
