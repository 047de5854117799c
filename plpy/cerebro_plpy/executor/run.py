"""One run from its first row to its last: written down, trained, ended well or marked as what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import QUERY_CANCELED, CerebroError
from cerebro_plpy.executor import request as requests
from cerebro_plpy.executor.loop import Loop
from cerebro_plpy.executor.progress import Config, Plan
from cerebro_plpy.executor.report import Report
from cerebro_plpy.logical.budget import evaluation_epochs
from cerebro_plpy.planner import costs
from cerebro_plpy.store import measurements, runs, session
from cerebro_plpy.topology import Topology

# A session that is lost, with the unit it was at, is replaced so many times in a row.
RETRIES = 3
MANY, SINGLE, EVALUATION = "many", "single", "evaluation"


@dataclass(frozen=True)
class Warm:
    """What a config goes on from: a state of an earlier run."""

    run_id: int
    step: int
    epochs: int


@dataclass(frozen=True)
class Start:
    """Where first weights come from, besides chance: columns of users' tables, states of earlier runs."""

    weights: Sequence[Mapping[str, Any]] = ()
    warm: Mapping[int, Warm] = field(default_factory=dict)


def weights_of(
    table: str, key_column: str | None, key: int | None, model_id: int, mst_key: int
) -> Mapping[str, Any]:
    """Weights in a row of a user's table, and the config, or the architecture, that starts from them."""
    return {
        "table": table,
        "column": "model_weights",
        "key_column": key_column,
        "key": key,
        "model_id": model_id,
        "mst_key": mst_key,
    }


def kept_states(db: Database, run_id: int | None) -> dict[int, Warm]:
    """The last states of an earlier run, if they are still there and the caller may use them."""
    if run_id is None:
        return {}
    role = session.current_user(db)
    rows = db.as_owner(lambda: runs.last_states(db, run_id, role))
    return {row["mst_key"]: Warm(run_id, row["step"], row["epochs"]) for row in rows}


@dataclass(frozen=True)
class Outcome:
    """What a run has come to."""

    run_id: int
    failures: Mapping[int, str]
    metrics: Sequence[measurements.MetricRow]
    last_step: int
    model_arch: Mapping[int, str]


def check(topology: Topology, request: requests.Request) -> Mapping[str, Mapping[str, Any]]:
    """Have the engine look at every architecture and config before anything is written."""
    engines = request.engines
    topology.open({engines.backend: (engines.threads, engines.use_gpus)}, request.segments)
    return topology.ask(
        engines.backend,
        "check",
        {
            "architectures": {a.model_id: a.model_arch for a in request.architectures},
            "configs": [asdict(c) for c in request.configs],
            "max_parameters": engines.max_parameters,
            **requests.shapes(request.source.summary),
        },
    )


def perform(
    db: Database,
    topology: Topology,
    request: requests.Request,
    described: Mapping[str, Mapping[str, Any]],
    start: Start,
    write: Callable[[Outcome], None],
    kind: str = MANY,
    model_table: str | None = None,
) -> None:
    """Write a new run down and carry it out."""
    run_id = topology.command("next_run_id", {})["run_id"]
    with behind(topology, run_id):
        _perform(db, topology, request, run_id, described, start, write, kind, model_table)


def _perform(
    db: Database,
    topology: Topology,
    request: requests.Request,
    run_id: int,
    described: Mapping[str, Mapping[str, Any]],
    start: Start,
    write: Callable[[Outcome], None],
    kind: str,
    model_table: str | None,
) -> None:
    configs = [_config_row(request, c, start) for c in request.configs]
    architectures = [_architecture_row(key, facts) for key, facts in described.items()]
    topology.command(
        "create_run",
        {
            "run": asdict(_run_row(db, topology, request, run_id, kind, model_table)),
            "architectures": [asdict(a) for a in architectures],
            "configs": [asdict(c) for c in configs],
            "weights": list(start.weights),
        },
    )
    plan = make_plan(request, configs, architectures, {})
    carry_out(db, topology, request, run_id, plan, architectures, write)


@contextmanager
def behind(topology: Topology, run_id: int) -> Iterator[None]:
    """Be the one session that drives a run. However that ends, the run's rows say how."""
    topology.hold(run_id)
    try:
        yield
    except BaseException as error:
        _end_badly(topology, run_id, error)
        raise
    topology.let_go()


def carry_out(
    db: Database,
    topology: Topology,
    request: requests.Request,
    run_id: int,
    plan: Plan,
    architectures: Sequence[runs.ArchitectureRow],
    write: Callable[[Outcome], None],
) -> None:
    """Do what is left of a run and write its tables."""
    measures_only = not request.epochs
    report = Report(db, run_id, plan, request.validation is not None, quiet=measures_only)
    retries = int(session.setting(db, "retries") or RETRIES)
    Loop(run_id, plan, topology, report.take, lambda: session.tick(db), retries).run()
    report.finish()
    write(_outcome(db, run_id, plan, architectures))
    if measures_only:
        topology.command("delete_run", {"run_id": run_id})
    else:
        topology.command("end_run", {"run_id": run_id, "event": "finished", "detail": None})


def _outcome(db: Database, run_id: int, plan: Plan, architectures: Sequence[runs.ArchitectureRow]) -> Outcome:
    return Outcome(
        run_id,
        {c.mst_key: c.failure for c in plan.configs.values() if c.failure is not None},
        db.as_owner(lambda: measurements.metrics(db, run_id)),
        plan.epochs * plan.segments,
        {a.model_id: a.model_arch for a in architectures},
    )


def _end_badly(topology: Topology, run_id: int, error: BaseException) -> None:
    """Leave no session behind, and a row that says what happened."""
    topology.stop()
    cancelled = not isinstance(error, CerebroError) or error.sqlstate == QUERY_CANCELED
    event = "interrupted" if cancelled else "failed"
    # Where the server is going down this cannot be said any more; the lock that is gone says it too.
    with suppress(CerebroError):
        topology.command("end_run", {"run_id": run_id, "event": event, "detail": str(error)})
        topology.let_go()
    topology.close()


def make_plan(
    request: requests.Request,
    configs: Sequence[runs.ConfigRow],
    architectures: Sequence[runs.ArchitectureRow],
    standings: Mapping[int, runs.Standing],
) -> Plan:
    """What is to be done, less what committed visits and evaluations have done already."""
    rows = request.source.summary.total_rows // request.segments
    flops = {a.model_id: a.flops_per_row for a in architectures}
    chosen = {c.mst_key: c for c in request.configs}
    planned = {}
    for row in configs:
        config = chosen[row.mst_key]
        units = costs.estimate(rows, config.passes, config.batch_size, flops[row.model_id])
        planned[row.mst_key] = Config(
            row.mst_key, row.backend, (row.model_id, config.batch_size), units, row.epochs_before
        )
    for standing in standings.values():
        config = planned[standing.mst_key]
        config.step, config.loss, config.failure = standing.step, standing.loss, standing.failure
    evaluations = evaluation_epochs(request.epochs, request.metrics_frequency) if request.epochs else [0]
    done = {(s.mst_key, epoch) for s in standings.values() for epoch in s.evaluated}
    return Plan(request.seed, request.segments, request.epochs, evaluations, planned, done)


def _run_row(
    db: Database,
    topology: Topology,
    request: requests.Request,
    run_id: int,
    kind: str,
    model_table: str | None,
) -> runs.RunRow:
    return runs.RunRow(
        run_id=run_id,
        owner=session.current_user(db),
        kind=kind,
        source_table=request.source.table.quoted,
        validation_table=request.validation.table.quoted if request.validation else None,
        model_table=model_table,
        epochs=request.epochs,
        metrics_frequency=request.metrics_frequency,
        segments=request.segments,
        seed=request.seed,
        memory_mb=request.engines.memory_mb,
        threads=request.engines.threads,
        use_gpus=request.engines.use_gpus,
        topology=topology.name,
        arch_table=request.arch_table.quoted,
        selection_table=request.selection_table,
        warm_start=request.warm_start,
        name=request.name,
        description=request.description,
    )


def _architecture_row(model_id: str, facts: Mapping[str, Any]) -> runs.ArchitectureRow:
    return runs.ArchitectureRow(int(model_id), facts["json"], facts["parameters"], facts["flops_per_row"])


def _config_row(request: requests.Request, chosen: requests.Chosen, start: Start) -> runs.ConfigRow:
    warm = start.warm.get(chosen.mst_key)
    return runs.ConfigRow(
        chosen.mst_key,
        chosen.model_id,
        chosen.compile_params,
        chosen.fit_params,
        request.engines.backend,
        warm.run_id if warm else None,
        warm.step if warm else None,
        warm.epochs if warm else 0,
    )
