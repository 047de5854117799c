"""Carry out a run from its first row to its last: store it, train its configs, and record how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.commands import (
    Check,
    CheckedConfig,
    CreateRun,
    DeleteRun,
    EndRun,
    NextRunId,
    StartingWeights,
    WeightsOfGroups,
)
from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, QUERY_CANCELED, SEGMENT_GONE, WRONG_STATE, CerebroError
from cerebro_plpy.executor.plans import calibrating
from cerebro_plpy.executor.running import run_rows
from cerebro_plpy.executor.running.decide import Decider, Planned, Search
from cerebro_plpy.executor.running.loop import RunLoop
from cerebro_plpy.executor.running.report import ByEpoch, Report
from cerebro_plpy.executor.starting import choosing, cutting, functions, fusing, gpus, groups
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.search.build import build
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.params import CompileParams, parse_fit, reparse_compile
from cerebro_plpy.planner.plan import Plan
from cerebro_plpy.planner.units import Config, PartDone, Unit
from cerebro_plpy.store import interrupts, session
from cerebro_plpy.store.models import functions as registry
from cerebro_plpy.store.runs import measurements, runs, state_rows
from cerebro_plpy.topology import Topology

# How often in a row a unit of work is tried again after its session was lost.
RETRIES = 3
MANY, SINGLE, AUTOML, EVALUATION = "many", "single", "automl", "evaluation"


class _NewestRuns(dict[str, int]):
    """The newest run that each role has begun in this session, by name of the role."""


@dataclass(frozen=True)
class Start:
    """The weights with which configs start, if not random ones: stored weights, or states of earlier runs."""

    weights: Sequence[StartingWeights] = ()
    warm: Mapping[int, run_rows.Warm] = field(default_factory=dict)
    of_groups: Sequence[WeightsOfGroups] = ()


def kept_states(db: Database, run_id: int | None) -> dict[int, run_rows.Warm]:
    """Return the last state of each config of an earlier run, if it is kept and the caller may use it."""
    if run_id is None:
        return {}
    role = session.current_user(db)
    rows = state_rows.newest(db, run_id, role)
    return {row["mst_key"]: run_rows.Warm(run_id, row["step"], row["epochs"]) for row in rows}


@dataclass(frozen=True)
class NewRun:
    """A run that a call asks for, checked but not yet stored."""

    kind: str
    request: requests.Request
    # The engine's description of each architecture.
    described: Mapping[str, Mapping[str, Any]]
    start: Start
    model_table: str | None = None
    # The order of the results of the run that is replayed.
    order: Sequence[tuple[int, int]] = ()
    # The time on the monotonic clock at which the time budget ends, if it began before the run.
    ends_at: float | None = None


@dataclass(frozen=True)
class Ended:
    """The end of a config. Its result is the state after `step`; `step` is None if it finished no epoch."""

    config: requests.Chosen
    status: str
    reason: str | None
    step: int | None


@dataclass(frozen=True)
class Outcome:
    """The result of a run: how each config ended, all metrics, and the architectures by `model_id`."""

    run_id: int
    ended: Mapping[int, Ended]
    metrics: Sequence[measurements.MetricRow]
    model_arch: Mapping[int, str]

    def metrics_of(self, mst_key: int) -> Sequence[measurements.MetricRow]:
        return self._metrics_by_key.get(mst_key, [])

    def params_of(self, compile_params: str) -> CompileParams:
        """Return the parsed compile parameters. A text that many configs share is parsed only once."""
        if compile_params not in self._read_params:
            self._read_params[compile_params] = reparse_compile(compile_params)
        return self._read_params[compile_params]

    @cached_property
    def _read_params(self) -> dict[str, CompileParams]:
        return {}

    @cached_property
    def _metrics_by_key(self) -> Mapping[int, list[measurements.MetricRow]]:
        found: dict[int, list[measurements.MetricRow]] = {}
        for row in self.metrics:
            found.setdefault(row.mst_key, []).append(row)
        return found


def check(
    db: Database, topology: Topology, request: requests.Request, sessions: int | None = None
) -> dict[str, Mapping[str, Any]]:
    """Have the engines check each architecture and config; return the description of each architecture."""
    open_sessions(db, topology, request, sessions)
    found: dict[str, Mapping[str, Any]] = {}
    for backend in request.backends:
        found.update(topology.ask(backend, check_command(db, _part_on(request, backend))))
    return found


def _part_on(request: requests.Request, backend: str) -> requests.Request:
    """Return the request with only the architectures and configs that this engine trains."""
    return replace(
        request,
        architectures=[
            a for a in request.architectures if request.engines.find_engine(a.model_id) == backend
        ],
        configs=[c for c in request.configs if request.engines.find_engine(c.model_id) == backend],
    )


def settle(
    db: Database, topology: Topology, request: requests.Request, examples: Sequence[requests.Chosen]
) -> requests.Request:
    """Return the request with the planner's choices, made after the run's engine has described the nets."""
    request = choosing.replayed(db, request)
    if request.choosable is None:
        return request
    asked = replace(request, configs=examples, engines=replace(request.engines, by_model={}))
    open_sessions(db, topology, asked, 1)
    command = replace(check_command(db, asked), sizes=True)
    described = topology.ask(asked.engines.backend, command)
    inline = topology.name == "inline"
    return choosing.settled(db, request, examples, described, one_engine=inline)


def check_command(db: Database, request: requests.Request) -> Check:
    """Return the command by which an engine checks every architecture and config of the request."""
    architectures, summary = request.architectures, request.source.summary
    return Check(
        architectures={str(a.model_id): a.model_arch for a in architectures},
        configs=[
            CheckedConfig(
                c.mst_key, c.model_id, c.compile_params, list(parse_fit(c.fit_params).thawed()), c.batch_size
            )
            for c in request.configs
        ],
        functions=registry.needed(
            db, [c.compile_params for c in request.configs], [a.model_arch for a in architectures]
        ),
        max_parameters=request.engines.max_parameters,
        input_shapes=summary.input_shapes,
        target_shapes=summary.target_shapes,
        target_kinds=["one-hot" if one_hot else "value" for one_hot in summary.one_hot],
        # NULL is the first class; NULLs behind the classes only leave room for more.
        null_classes=[values is not None and values[:1] == [None] for values in summary.class_values],
        recompute=request.limits.recompute,
        device_memory_mb=request.limits.device_memory_mb,
        # Whether the machine has room for a net depends on whether it is cut.
        sizes=request.limits.device_memory_mb is not None,
    )


def open_sessions(
    db: Database, topology: Topology, request: requests.Request, sessions: int | None = None
) -> None:
    """Open the segments' sessions, or only `sessions` of them, each with its share of the GPUs."""
    engines = request.engines
    dealt = gpus.of_segments(db, engines.use_gpus, request.source.summary, topology.name == "inline")
    if topology.name == "inline" and len(request.backends) > 1:
        raise CerebroError(
            f"one session cannot train with {' and '.join(request.backends)}",
            detail="This run uses no session but this one. The NOTICE before this error says why.",
            hint="Name one backend.",
            sqlstate=NOT_SUPPORTED,
        )
    wanted = [engines.start(name, dealt) for name in request.backends]
    topology.open(wanted, sessions or request.segments)


def perform(db: Database, topology: Topology, new: NewRun, write: Callable[[Outcome], None]) -> None:
    """Store a new run and carry it out; `write` fills its result tables when it ends."""
    request = new.request
    run_id = topology.command(NextRunId())["run_id"]
    with _ending(topology, run_id, new.kind):
        creation = _creation(db, topology, new, run_id)
        topology.hold(run_id, creation)
        _remember(db, new, run_id)
        configs = creation.configs
        planned = planning(db, request, run_id)
        plan = make_plan(request, configs, planned, {})
        decider = Decider(
            db,
            topology=topology,
            run_id=run_id,
            engines=request.engines,
            plan=plan,
            planned=planned,
            rows=configs,
            search=search_of(request, new.order),
            limits=request.limits,
            ends_at=new.ends_at,
        )
        carry_out(
            db, topology=topology, request=request, run_id=run_id, plan=plan, decider=decider, write=write
        )


def write_down(db: Database, topology: Topology, new: NewRun) -> int:
    """Store a new run that another session is to carry out, and return its `run_id`."""
    run_id = topology.command(NextRunId())["run_id"]
    topology.command(_creation(db, topology, new, run_id))
    _remember(db, new, run_id)
    return run_id


def last_run(db: Database) -> int:
    """Return the `run_id` of the current user's newest run in this session; raise an error without one."""
    run_id = find_newest(db)
    if run_id is None:
        raise CerebroError("no run was begun in this session yet", sqlstate=WRONG_STATE)
    return run_id


def find_newest(db: Database) -> int | None:
    """Return the `run_id` of the newest run that the current user began in this session, or None."""
    return memory.get_instance(_NewestRuns).get(session.current_user(db))


def keep_newest(db: Database, run_id: int | None) -> None:
    """Set the current user's newest run in this session to `run_id`, for example after an internal run."""
    newest = memory.get_instance(_NewestRuns)
    newest.pop(session.current_user(db), None)
    if run_id is not None:
        newest[session.current_user(db)] = run_id


def _creation(db: Database, topology: Topology, new: NewRun, run_id: int) -> CreateRun:
    nets = {int(model_id): calibrating.Net.from_facts(facts) for model_id, facts in new.described.items()}
    priced = calibrating.visit_seconds(db, new.request, lambda: nets)
    rows = [run_rows.config_row(new.request, c, new.start.warm.get(c.mst_key)) for c in new.request.configs]
    kinds = [priced(row) for row in rows]
    return CreateRun(
        run=run_rows.run_row(
            db,
            new.request,
            run_id,
            kind=new.kind,
            model_table=new.model_table,
            topology=topology.name,
        ),
        architectures=run_rows.architectures(new.described),
        configs=[
            replace(row, kind=kind, visit_seconds=seconds)
            for row, (kind, seconds) in zip(rows, kinds, strict=True)
        ],
        weights=new.start.weights,
        weights_of_groups=new.start.of_groups,
        functions=functions.used(new.described),
        groups=list(new.request.groups.rows.values()) if new.request.groups else (),
    )


def _remember(db: Database, new: NewRun, run_id: int) -> None:
    """Record the run as this session's newest; send a notice if its search decides by training rows."""
    if new.request.search is not None and new.request.validation is None:
        db.notice("no validation table was given: the training rows decide")
    if new.kind != EVALUATION:
        memory.get_instance(_NewestRuns)[session.current_user(db)] = run_id


@contextmanager
def behind(topology: Topology, run_id: int) -> Iterator[None]:
    """Hold a run's lock while the `with` block carries it out; store in the run's rows how that ended."""
    topology.hold(run_id)
    with _ending(topology, run_id):
        yield


@contextmanager
def _ending(topology: Topology, run_id: int, kind: str | None = None) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        resumable = kind != EVALUATION and not topology.ends_with_transaction
        _end_badly(topology, run_id, error, resumable=resumable)
        raise
    topology.let_go()


def carry_out(
    db: Database,
    topology: Topology,
    request: requests.Request,
    run_id: int,
    plan: Plan,
    decider: Decider,
    write: Callable[[Outcome], None],
    measured: ByEpoch | None = None,
) -> None:
    """Carry out the rest of a run and write its result tables; `measured` has the evaluations so far."""
    plan.take_up()
    measures_only = not request.epochs
    report = Report(
        db,
        run_id=run_id,
        plan=plan,
        dataset=request.deciding_rows,
        params=decider.params,
        measured=measured or {},
        stops_early=request.search is not None,
        quiet=measures_only,
    )
    retries = int(session.setting(db, "retries") or RETRIES)

    def take(unit: Unit, result: Mapping[str, Any]) -> None:
        decider.take(unit, result)
        report.take(unit, result)

    RunLoop(
        run_id=run_id,
        plan=plan,
        topology=topology,
        report=take,
        decide=decider.turn,
        tick=partial(interrupts.tick, db),
        retries=retries,
    ).run()
    exceeded = decider.finish()
    write(_outcome(db, run_id, plan, decider.reasons))
    if measures_only:
        topology.command(DeleteRun(run_id=run_id))
    else:
        keep = [(c.mst_key, step) for c in plan.configs.values() if (step := _kept_step(plan, c)) is not None]
        failure = _failure_of_all(plan)
        event = "finished" if failure is None else "failed"
        rates = calibrating.measured(db, run_id, request)
        topology.command(
            EndRun(run_id=run_id, event=event, detail=failure or exceeded, keep=keep, rates=rates)
        )
        if event == "finished":
            runs.notify(db, run_id, event)
    report.finish()


def _failure_of_all(plan: Plan) -> str | None:
    """Return the reason why a run has no result if all its configs failed, else None."""
    counted = [config for config in plan.configs.values() if not config.deleted]
    failures = [config.failure for config in counted if config.failure is not None]
    if not failures or len(failures) < len(counted):
        return None
    if len(failures) == 1:
        return f"its only config failed: {failures[0]}"
    return f"all {len(failures)} configs failed, the first of them: {failures[0]}"


def _kept_step(plan: Plan, config: Config) -> int | None:
    """Return the step of the state to keep: that of the config's result or, if it failed, its last epoch."""
    if config.failure is None:
        return plan.result_step(config)
    return plan.whole_epochs(config) * plan.segments or None


def _outcome(db: Database, run_id: int, plan: Plan, reasons: Mapping[int, str]) -> Outcome:
    rows, metrics = runs.configs(db, run_id), measurements.metrics(db, run_id)
    architectures = runs.architectures(db, run_id)
    # Configs that came in later may name functions that this session does not know of.
    with registered.checked_before():
        chosen = requests.of_run(rows)
    ended = {
        c.mst_key: _ended(plan, plan.configs[c.mst_key], c, reasons)
        for c in chosen
        if not plan.configs[c.mst_key].deleted
    }
    return Outcome(run_id, ended, metrics, {a.model_id: a.model_arch for a in architectures})


def _ended(plan: Plan, config: Config, chosen: requests.Chosen, reasons: Mapping[int, str]) -> Ended:
    if config.failure is not None:
        return Ended(chosen, "failed", config.failure, None)
    step = plan.result_step(config)
    if config.stop_at is not None:
        return Ended(chosen, "stopped", reasons.get(config.mst_key), step)
    return Ended(chosen, "finished", None, step)


def _end_badly(topology: Topology, run_id: int, error: BaseException, *, resumable: bool) -> None:
    """Stop all sessions, and store in the run's rows how it ended; delete a run that cannot be resumed."""
    topology.stop()
    cancelled = not isinstance(error, CerebroError) or error.sqlstate in (QUERY_CANCELED, SEGMENT_GONE)
    event = "interrupted" if cancelled else "failed"
    # A server that shuts down no longer takes this command; the released lock says the same.
    ending = EndRun(run_id=run_id, event=event, detail=str(error))
    with suppress(CerebroError):
        topology.command(ending if resumable else DeleteRun(run_id=run_id))
        topology.let_go()
    topology.close()


def planning(db: Database, request: requests.Request, run_id: int) -> Planned:
    """Return the function that makes a config of the plan from its row, also for configs added later."""
    visit_seconds = calibrating.visit_seconds(db, request, partial(calibrating.nets_of_run, db, run_id))
    known = request.groups.rows if request.groups else {}
    alike = fusing.alike(db, request, run_id)

    def planned(row: runs.ConfigRow, until: int) -> Config:
        if row.kind is None or row.visit_seconds is None:
            kind, seconds = visit_seconds(row)
        else:
            kind, seconds = row.kind, row.visit_seconds
        group = None if row.group_id is None else known[row.group_id]
        return Config(
            mst_key=row.mst_key,
            backend=row.backend,
            kind=kind,
            visit_units=seconds,
            until=until,
            epochs_before=row.epochs_before,
            source=row.source_key if row.source_step is not None else None,
            first_step=row.source_step or 0,
            config_key=row.config_key,
            fold=row.fold,
            group=None if group is None else group.shown,
            home=None if group is None else group.home,
            alike=alike(row),
            cut=cutting.mark(request.limits, row.model_id, row.fit_params),
        )

    return planned


def make_plan(
    request: requests.Request,
    configs: Sequence[runs.ConfigRow],
    planned: Planned,
    standings: Mapping[int, runs.Standing],
    parts: Sequence[runs.PartRow] = (),
) -> Plan:
    """Return the plan of a run, without the visits and evaluations that are already committed.

    In a run with a search procedure, configs wait for the decisions of this procedure.
    """
    until = request.epochs if request.search is None else 0
    made = {row.mst_key: planned(row, until) for row in configs}
    for standing in standings.values():
        config = made[standing.mst_key]
        config.step, config.loss, config.failure = standing.step, standing.loss, standing.failure
    for part in parts:
        config = made[part.mst_key]
        if part.epoch == config.step // request.segments + 1:
            config.parts[part.segment] = PartDone(part.rows, part.loss)
            config.visiting = True
    done = {(s.mst_key, epoch) for s in standings.values() for epoch in s.evaluated}
    best = request.limits.restore_best
    frequency = request.metrics_frequency
    return Plan(
        seed=request.seed,
        segments=request.segments,
        epochs=request.epochs,
        frequency=frequency,
        configs=made,
        evaluated=done,
        keeps_best=best,
        even=request.limits.even,
        average_from=request.limits.average_from,
        checkpoint=request.limits.checkpoint_every,
        budgeted=request.limits.max_visits is not None or request.limits.max_seconds is not None,
    )


def search_of(request: requests.Request, order: Sequence[tuple[int, int]] = ()) -> Search | None:
    """Return the search procedure of a run, newly built, or None if the run has none."""
    if request.search is None:
        return None
    procedure = build(request.search, groups.rows_trained(request))
    return Search(procedure, bool(request.search.get("by_loss")), order)
