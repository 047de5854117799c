"""cerebro.resume: goes on with a run from its last committed visits, to the same bits and the same tables."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DUPLICATE_TABLE, WRONG_STATE, CerebroError
from cerebro_plpy.executor import fit, single
from cerebro_plpy.executor import request as requests
from cerebro_plpy.executor import run as runner
from cerebro_plpy.store import models, results, runs, session
from cerebro_plpy.store.names import Table, TargetTable, resolve_table
from cerebro_plpy.topology.choose import choose
from cerebro_plpy.topology.inline import Run


def resume(db: Database, run_id: int | None, search_path: str, run_inline: Run) -> None:
    """Finish a run that was interrupted or whose tables were rolled back."""
    requests.check_writable(db)
    role = session.current_user(db)
    run = db.as_owner(lambda: runs.own_run(db, run_id, role))
    earlier = _earlier(db, run, search_path)
    request = _request(db, run, search_path)
    suffixes = single.SUFFIXES if run.kind == runner.SINGLE else fit.SUFFIXES
    tables = fit.targets(db, run.model_table, search_path, suffixes, earlier)
    topology = choose(db, role, request.tables, run_inline)
    engines = request.engines
    topology.command("resume_run", {"run_id": run.run_id})
    topology.open({engines.backend: (engines.threads, engines.use_gpus)}, request.segments)
    if earlier is None:
        _create(db, run, request, tables)
    write = single.write_tables if run.kind == runner.SINGLE else fit.write_tables
    configs, architectures, standings = db.as_owner(
        lambda: (
            runs.configs(db, run.run_id),
            runs.architectures(db, run.run_id),
            runs.standings(db, run.run_id),
        )
    )
    plan = runner.make_plan(request, configs, architectures, standings)
    runner.carry_out(
        db, topology, request, run.run_id, plan, architectures,
        lambda outcome: write(db, request, tables, earlier is not None, outcome),
    )  # fmt: skip


def forget(db: Database, run_id: int | None) -> None:
    """Remove a run's states and log rows; its result tables stay."""
    role = session.current_user(db)

    def remove() -> None:
        run = runs.own_run(db, run_id, role)
        if runs.driven(db, run.run_id):
            raise CerebroError(f"run {run.run_id} is running", hint="Cancel it first.", sqlstate=WRONG_STATE)
        runs.delete(db, run.run_id)

    db.as_owner(remove)


def _earlier(db: Database, run: runs.RunRow, search_path: str) -> list[Table] | None:
    """The tables that a warm start replaces; a run that has its tables already needs no resuming."""
    suffixes = single.SUFFIXES if run.kind == runner.SINGLE else fit.SUFFIXES
    try:
        found = fit.earlier_tables(db, run.model_table, search_path, suffixes)
    except CerebroError:
        if run.warm_start:
            raise
        return None
    if results.summary_row(db, found[-1].quoted).get("run_id") == run.run_id:
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


def _request(db: Database, run: runs.RunRow, search_path: str) -> requests.Request:
    source, validation = requests.training_and_validation(
        db, run.source_table, run.validation_table, search_path
    )
    rows = db.as_owner(lambda: runs.configs(db, run.run_id))
    selected = [models.Selected(c.mst_key, c.model_id, c.compile_params, c.fit_params) for c in rows]
    limit = requests.MAX_PARAMETERS
    engines = requests.Engines(rows[0].backend, run.threads, run.use_gpus, run.memory_mb, limit)
    return requests.Request(
        source, validation, resolve_table(db, run.arch_table, search_path, "model architecture table"), [],
        requests.choose(selected), run.epochs, run.metrics_frequency, run.seed, engines, run.name,
        run.description, run.selection_table, run.warm_start,
    )  # fmt: skip


def _create(db: Database, run: runs.RunRow, request: requests.Request, tables: Sequence[TargetTable]) -> None:
    classes = request.source.summary.class_value_types
    if run.kind == runner.SINGLE:
        results.create_single(db, tables[0], tables[1], classes)
    else:
        results.create(db, tables[0], tables[1], tables[2], classes)
