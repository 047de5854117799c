"""One run from its first row to its last: written down, trained, ended well or marked as what it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import QUERY_CANCELED, CerebroError
from cerebro_plpy.executor import request as requests
from cerebro_plpy.executor.loop import Loop
from cerebro_plpy.executor.progress import Config, Plan
from cerebro_plpy.executor.report import Report
from cerebro_plpy.logical.spec import evaluation_epochs
from cerebro_plpy.planner import costs
from cerebro_plpy.store import runs, session
from cerebro_plpy.topology import Topology

FIT, EVALUATE = "fit", "evaluate"


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
    metrics: Sequence[runs.MetricRow]
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
    kind: str = FIT,
    model_table: str | None = None,
) -> None:
    """Carry a run out and write its tables. However it ends, its rows say how, and committed visits stay."""
    run_id = topology.command("next_run_id", {})["run_id"]
    configs = [_config_row(request, c, start) for c in request.configs]
    topology.command(
        "create_run",
        {
            "run": asdict(_run_row(db, topology, request, run_id, kind, model_table)),
            "architectures": [_architecture_row(key, facts) for key, facts in described.items()],
            "configs": [asdict(c) for c in configs],
            "weights": list(start.weights),
        },
    )
    try:
        write(_train(db, topology, request, run_id, _plan(request, configs, described), described))
    except BaseException as error:
        _end_badly(topology, run_id, error)
        raise
    if kind == EVALUATE:
        topology.command("delete_run", {"run_id": run_id})
    else:
        topology.command("end_run", {"run_id": run_id, "event": "finished", "detail": None})


def _train(
    db: Database,
    topology: Topology,
    request: requests.Request,
    run_id: int,
    plan: Plan,
    described: Mapping[str, Mapping[str, Any]],
) -> Outcome:
    report = Report(db, run_id, plan, request.validation is not None, quiet=not request.epochs)
    Loop(run_id, plan, topology, report.take, lambda: session.tick(db)).run()
    report.finish()
    return Outcome(
        run_id,
        {c.mst_key: c.failure for c in plan.configs.values() if c.failure is not None},
        db.as_owner(lambda: runs.metrics(db, run_id)),
        request.epochs * request.segments,
        {int(key): facts["json"] for key, facts in described.items()},
    )


def _end_badly(topology: Topology, run_id: int, error: BaseException) -> None:
    """Leave no session behind, and a row that says what happened."""
    topology.stop()
    cancelled = not isinstance(error, CerebroError) or error.sqlstate == QUERY_CANCELED
    event = "interrupted" if cancelled else "failed"
    topology.command("end_run", {"run_id": run_id, "event": event, "detail": str(error)})
    topology.close()


def _plan(
    request: requests.Request,
    configs: Sequence[runs.ConfigRow],
    described: Mapping[str, Mapping[str, Any]],
) -> Plan:
    rows = request.source.summary.total_rows // request.segments
    flops = {int(key): facts["flops_per_row"] for key, facts in described.items()}
    before = {c.mst_key: c.epochs_before for c in configs}
    planned = {
        c.mst_key: Config(
            c.mst_key,
            request.engines.backend,
            (c.model_id, c.batch_size),
            costs.estimate(rows, c.passes, c.batch_size, flops[c.model_id]),
            before[c.mst_key],
        )
        for c in request.configs
    }
    evaluations = evaluation_epochs(request.epochs, request.metrics_frequency) if request.epochs else [0]
    return Plan(request.seed, request.segments, request.epochs, evaluations, planned)


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
        topology=topology.name,
        name=request.name,
        description=request.description,
    )


def _architecture_row(model_id: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "model_id": int(model_id),
        "model_arch": facts["json"],
        "parameters": facts["parameters"],
        "flops_per_row": facts["flops_per_row"],
    }


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
