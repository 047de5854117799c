"""cerebro.resume: continue a run from its last committed visits. The results are the same, to the bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_plpy.commands import ResumeRun
from cerebro_plpy.database import Database
from cerebro_plpy.errors import DUPLICATE_TABLE, WRONG_STATE, CerebroError
from cerebro_plpy.executor.calls.automl import AutomlCall
from cerebro_plpy.executor.calls.fit import FitCall
from cerebro_plpy.executor.calls.single import SingleCall
from cerebro_plpy.executor.running import background, replay
from cerebro_plpy.executor.running import run as runner
from cerebro_plpy.executor.starting import begin, functions, groups
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.budget import Limits, evaluation_epochs
from cerebro_plpy.store import session
from cerebro_plpy.store.names import Table, check_writable, resolve_table
from cerebro_plpy.store.packed import partitions
from cerebro_plpy.store.packed.groups import Groups
from cerebro_plpy.store.runs import (
    decisions,
    drivers,
    forgetting,
    measurements,
    replacing,
    results,
    run_groups,
    runs,
)
from cerebro_plpy.topology import Topology
from cerebro_plpy.topology.choose import choose, choose_local

RESULT_TABLES: Mapping[str, begin.ResultTables] = {
    call.kind: call.result_tables for call in (FitCall, AutomlCall, SingleCall)
}


def resume(db: Database, run_id: int | None) -> None:
    """Finish a run that was interrupted, or whose result tables were rolled back."""
    check_writable(db, "the result tables")
    role = session.current_user(db)
    run = runs.own_run(db, run_id, role)
    functions.go_on(db, run.run_id)
    request = request_of(db, run)
    topology = choose(db, request.tables)
    with runner.behind(topology, run.run_id):
        _go_on(db, topology, run, request)


def drive(db: Database, run_id: int, look_seconds: int) -> None:
    """Carry out a run in the background, in a session that acts with the identity of the run's caller.

    `look_seconds` is the most time that the caller's code, such as views, may take while tables are read.
    """
    role = session.current_user(db)
    run = runs.own_run(db, run_id, role)
    # The call that began the run holds these locks until it ends: take them before.
    tables = [name for name in (run.source_table, run.validation_table) if name is not None]
    partitions.keep_from_changing(db, tables, role)
    topology = choose_local(db, look_seconds)
    with runner.behind(topology, run.run_id):
        functions.go_on(db, run.run_id)
        request = background.with_built_in_types(db, request_of(db, run))
        _go_on(db, topology, run, request, begun=True)


def _go_on(
    db: Database,
    topology: Topology,
    run: runs.RunRow,
    request: requests.Request,
    begun: bool = False,
) -> None:
    earlier = _earlier(db, run)
    result_tables = RESULT_TABLES[run.kind]
    tables = begin.targets(
        db,
        name=run.model_table,
        suffixes=result_tables.suffixes,
        earlier=earlier,
        run_id=run.run_id,
    )
    if earlier is not None:
        replacing.check(db, tables, result_tables.columns(request), keeps=request.limits.changed_groups)
    write = begin.writer(db, result_tables, tables, request, replaces=earlier is not None)
    runner.open_sessions(db, topology, request)
    log = decisions.entries(db, run.run_id)
    last = max([request.epochs, *(entry.epochs for entry in log if entry.epochs is not None)])
    epochs = evaluation_epochs(last, request.metrics_frequency)
    if not begun:
        found = topology.command(ResumeRun(run_id=run.run_id, evaluation_epochs=epochs))
        _tell_damage(db, found["damaged"])
    configs, standings = runs.configs(db, run.run_id), runs.standings(db, run.run_id)
    seconds = measurements.seconds_spent(db, run.run_id)
    metrics = measurements.metrics(db, run.run_id)
    planned = runner.planning(db, request, run.run_id)
    plan = runner.make_plan(request, configs, planned, standings, runs.parts(db, run.run_id))
    decider = runner.Decider(
        db, topology, run.run_id, request.engines, plan, planned, configs,
        runner.search_of(request, replay.order(db, request)), request.limits, seconds,
    )  # fmt: skip
    measured = _measured(metrics, request.deciding_rows)
    decider.take_up(log, measured)
    decider.unpause(run.owner)
    runner.carry_out(
        db,
        topology=topology,
        request=request,
        run_id=run.run_id,
        plan=plan,
        decider=decider,
        write=write,
        measured=measured,
    )


def _measured(
    rows: Sequence[measurements.MetricRow], dataset: str
) -> dict[tuple[int, int], dict[str, float | None]]:
    """Return the metrics that configs are compared by; the keys are pairs of config and epoch.

    The metrics are of the rows that `dataset` names; of training rows where a group has no such rows.
    """
    found: dict[str, dict[tuple[int, int], dict[str, float | None]]] = {}
    for row in rows:
        by_place = found.setdefault(row.dataset, {})
        by_place.setdefault((row.mst_key, row.epoch), {})[row.metric] = row.value
    return {**found.get("training", {}), **found.get(dataset, {})}


def _tell_damage(db: Database, found: Sequence[Mapping[str, Any]]) -> None:
    for damaged in found:
        key = damaged["mst_key"]
        if damaged["failure"] is None:
            db.warning(f"{damaged['reason']} Config {key} goes on from step {damaged['to']}.")
        else:
            db.warning(f"config {key} cannot go on: {damaged['failure']}")


def forget(db: Database, run_id: int | None) -> None:
    """Delete a run's states and log rows; its result tables stay."""
    run = runs.own_run(db, run_id, session.current_user(db), members=True)
    if not drivers.claim(db, run.run_id):
        raise CerebroError(f"run {run.run_id} is running", hint="Cancel it first.", sqlstate=WRONG_STATE)
    later = forgetting.find_warm_start(db, run.run_id)
    if later is not None:
        raise CerebroError(
            f"run {later} is not finished, and begins with the states of run {run.run_id}",
            hint=f"Resume run {later} to its end, or forget it first.",
            sqlstate=WRONG_STATE,
        )
    forgetting.delete(db, run.run_id)


def _earlier(db: Database, run: runs.RunRow) -> list[Table] | None:
    """Return the result tables that a warm start replaces; None without a warm start.

    Raise an error if the run's own results are in the tables already, or if the tables belong to another run.
    """
    try:
        found = begin.earlier_tables(db, run.model_table, RESULT_TABLES[run.kind])
    except CerebroError:
        if run.warm_start:
            raise
        return None
    summary = db.as_caller(run.owner, results.summary_row, db, found[-1].quoted)
    if summary.get("run_id") == run.run_id:
        if runs.last_event(db, run.run_id) == "failed":
            raise CerebroError(
                f"run {run.run_id} has ended: each of its configs failed",
                hint=f"Its reasons: SELECT * FROM cerebro.leaderboard WHERE run_id = {run.run_id}.",
                sqlstate=WRONG_STATE,
            )
        raise CerebroError(
            f"run {run.run_id} is finished: {run.model_table} has its models", sqlstate=WRONG_STATE
        )
    if not run.warm_start:
        raise CerebroError(
            f"{run.model_table} already exists and belongs to another run",
            hint=f"Drop or rename it, then resume run {run.run_id}.",
            sqlstate=DUPLICATE_TABLE,
        )
    return found


def request_of(db: Database, run: runs.RunRow) -> requests.Request:
    """Return the request of a run, rebuilt from the run's stored rows."""
    source, validation = requests.training_and_validation(db, run.source_table, run.validation_table)
    rows = runs.configs(db, run.run_id)
    limit = requests.MAX_PARAMETERS
    backend, by_model = runs.engines_of(run, rows)
    engines = requests.Engines(
        backend=backend,
        threads=run.threads,
        use_gpus=run.use_gpus,
        memory_mb=run.memory_mb,
        max_parameters=limit,
        by_model=by_model,
        cache_folder=session.setting(db, session.CACHE_FOLDER),
    )
    return requests.Request(
        source=source,
        validation=validation,
        arch_table=resolve_table(db, run.arch_table, "model architecture table"),
        architectures=[],
        configs=requests.of_run(rows),
        epochs=run.epochs,
        metrics_frequency=run.metrics_frequency,
        seed=run.seed,
        engines=engines,
        name=run.name,
        description=run.description,
        selection_table=run.selection_table,
        warm_start=run.warm_start,
        search=runs.searched(run),
        limits=Limits(**runs.limits(run)),
        object_table=run.object_table,
        spelled=runs.spelled(run),
        groups=_groups(db, run, source),
    )


def _groups(db: Database, run: runs.RunRow, source: requests.Data) -> Groups | None:
    """Return the groups of a run as they were when it began; None if it does not train on groups."""
    found = groups.read_groups(db, source)
    return None if found is None else replace(found, rows=run_groups.read(db, run.run_id))
