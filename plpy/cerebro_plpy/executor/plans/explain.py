"""cerebro.explain_fit and explain_automl: say what a call would cost, without writing anything.

The call is read and checked like a call that begins a run (`begin.py`), with the same errors. No session is
opened: an engine describes the nets in a session that already runs one, or else in this session.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, PROGRAM_LIMIT_EXCEEDED, CerebroError, missing_package
from cerebro_plpy.executor.calls.automl import AutomlCall
from cerebro_plpy.executor.calls.fit import FitCall
from cerebro_plpy.executor.plans import calibrating
from cerebro_plpy.executor.plans.asking import AskedEngine
from cerebro_plpy.executor.running import replay
from cerebro_plpy.executor.starting import choosing, cutting, fusing, groups
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical import options as parse
from cerebro_plpy.logical.budget import MOST_EPOCHS
from cerebro_plpy.logical.search.build import brings_configs, build
from cerebro_plpy.logical.search.template import Clone, StartConfig
from cerebro_plpy.planner import fusion, tree
from cerebro_plpy.planner.choosing import break_even, by_engine, cheapest_engines
from cerebro_plpy.planner.estimating.estimates import estimate, summarize
from cerebro_plpy.planner.estimating.rates import Observation, Rates
from cerebro_plpy.planner.estimating.searching import scenarios
from cerebro_plpy.planner.estimating.simulation import Prices
from cerebro_plpy.planner.estimating.tariffs import tariff_of
from cerebro_plpy.planner.estimating.work import ConfigKind, RunWork
from cerebro_plpy.planner.explanation import Alternative, Explained, Machine, counted
from cerebro_plpy.planner.explanation import tree as explained
from cerebro_plpy.store import interrupts, session
from cerebro_plpy.store.models import functions as registry
from cerebro_plpy.store.models import models
from cerebro_plpy.topology.choose import find_sessions

# The most segments for which a table can be packed.
MOST_SEGMENTS = 1024
WHAT_IF: dict[str, parse.Validator] = {
    "rows": parse.integer(1),
    "segments": parse.integer(1, MOST_SEGMENTS),
    "threads": parse.integer(1, 4096),
    "backend": parse.one_of(*parse.BACKENDS),
    "epochs": parse.integer(1, MOST_EPOCHS),
}
FORMATS = ("text", "json")
# The most segments of a search to be explained: it is simulated visit by visit.
MOST_SEARCHED = 64
# The most visits for which an alternative is simulated.
ALTERNATIVE_VISITS = 160


@dataclass(frozen=True)
class PlanWanted:
    """The arguments that say how a plan is made and in which format it is shown."""

    format: str | None
    what_if: str | None
    probe: bool | None = None

    @property
    def spelled(self) -> str:
        return (self.format or "text").lower()

    def check(self) -> Mapping[str, Any]:
        if self.spelled not in FORMATS:
            raise CerebroError(
                f'format is "{self.format}"', detail=f"It must be one of {', '.join(FORMATS)}."
            )
        found = parse.parse_options(
            self.what_if, WHAT_IF, "the facts of what_if", "Write what_if => '{\"rows\": 1000000}'."
        )
        if self.probe and found.keys() & {"backend", "threads"}:
            raise CerebroError(
                "probe times what is there, and what_if supposes another engine or other threads",
                hint="Ask without probe, or name the engine in the options.",
            )
        return found


def fit(
    db: Database,
    source_table: str | None,
    selection_table: str | None,
    num_iterations: int | None,
    use_gpus: bool | None,
    validation_table: str | None,
    frequency: int | None,
    options: str | None,
    format: str | None,
    probe: bool | None,
    what_if: str | None,
) -> list[str]:
    """Return the plan of a call of madlib_fit_multiple_model, as lines of text or JSON."""
    asked = PlanWanted(format, what_if, probe)
    call = FitCall(
        source_table=source_table,
        model_output_table=None,
        model_selection_table=selection_table,
        num_iterations=num_iterations,
        use_gpus=use_gpus,
        validation_table=validation_table,
        metrics_compute_frequency=frequency,
        warm_start=False,
        name=None,
        description=None,
        use_caching=False,
        options=options,
    )
    return _explain(db, call, asked)


def automl(
    db: Database,
    source_table: str | None,
    arch_table: str | None,
    model_ids: Sequence[int | None] | None,
    compile_grid: str | None,
    fit_grid: str | None,
    method: str | None,
    params: str | None,
    random_state: int | None,
    use_gpus: bool | None,
    validation_table: str | None,
    frequency: int | None,
    options: str | None,
    format: str | None,
    probe: bool | None,
    what_if: str | None,
) -> list[str]:
    """Return the plan of a call of madlib_automl, as lines of text or JSON."""
    asked = PlanWanted(format, what_if, probe)
    call = AutomlCall(
        source_table=source_table,
        model_output_table=None,
        model_arch_table=arch_table,
        model_selection_table=None,
        model_id_list=model_ids,
        compile_params_grid=compile_grid,
        fit_params_grid=fit_grid,
        automl_method=method,
        automl_params=params,
        random_state=random_state,
        object_table=None,
        use_gpus=use_gpus,
        validation_table=validation_table,
        metrics_compute_frequency=frequency,
        name=None,
        description=None,
        use_caching=False,
        options=options,
    )
    return _explain(db, call, asked)


def _explain(db: Database, call: FitCall | AutomlCall, asked: PlanWanted) -> list[str]:
    wanted = asked.check()
    given = call.read_options()
    if isinstance(call, AutomlCall) and call.random_state is None and given.replay is None:
        # The configs of the run will be others, of the same number.
        call = replace(call, random_state=0)
    registry.begin(db, given.replay)
    request = call.described(db, given) if isinstance(call, AutomlCall) else call.resolve(db, given)
    if isinstance(call, AutomlCall) and request.groups is not None:
        raise CerebroError(
            f"{request.source.table.quoted} was packed in groups, and a search of groups cannot be explained",
            hint="cerebro.explain_fit shows what training configs on all groups takes.",
            sqlstate=NOT_SUPPORTED,
        )
    examples = call.examples(request)
    requests.check_class_weights(request, examples)
    groups.check_epochs(request, examples)
    reason, handed = find_sessions(db, request.tables, request.handed_rows)
    if reason is None or handed:
        request = choosing.with_usual_engine(db, request, examples)
    replay.order(db, request)
    request = fusing.replayed(db, choosing.replayed(db, request))
    for backend in request.backends:
        if not session.engines_here(backend):
            raise missing_package(backend)
    ask = AskedEngine(db, request)
    described = ask.describe(replace(request, configs=examples))
    if request.choosable is not None:
        request = choosing.settled(db, request, examples, described, tells=False)
        ask = AskedEngine(db, request)
    request = cutting.settled(request, examples, described)
    fusing.check(request)
    cutting.check_device(request)
    cutting.check_recomputed(request, described)
    cutting.check_memory(request, examples, described)
    work = calibrating.work_of(db, request, examples, described, ask.warm)
    if reason is not None:
        # Without other sessions, this one does the work of every segment in turn.
        work = replace(work, sessions=min(work.sessions, handed) or 1, warm=False)
    work = _supposed(db, work, wanted, request)
    if request.search is not None and work.segments > MOST_SEARCHED:
        raise CerebroError(
            f"a search is planned for at most {MOST_SEARCHED} segments, not {work.segments}",
            hint="Its plan is played visit by visit.",
            sqlstate=PROGRAM_LIMIT_EXCEEDED,
        )
    known = _Measurements(calibrating.observations(db), partial(interrupts.tick, db))
    if asked.probe:
        work, found = ask.probe(work, request, examples, described)
        known = replace(known, observations=[*known.observations, *found])
    if request.search is None or request.groups is not None:
        about = _about_fit(request, work, known, machine(db))
        engines = requests.engines_for(request.limits)
        about = replace(about, alternatives=_alternatives(db, work, known, engines))
    else:
        about = _about_search(request, work, known, described, machine(db))
    # A seed that was not given is drawn when the run begins.
    shown = about.settings if given.seed is not None else {**about.settings, "seed": None}
    return show(explained(replace(about, probed=bool(asked.probe), settings=shown)), asked.spelled)


def show(node: tree.Node, format: str) -> list[str]:
    return [tree.as_json(node)] if format == "json" else tree.as_text(node)


def machine(db: Database) -> Machine:
    try:
        space = os.statvfs(session.data_directory(db))
        free = space.f_bavail * space.f_frsize
    except OSError:
        free = None
    return Machine(requests.machine_memory(), free, tariff_of(session.settings(db)))


def _supposed(db: Database, work: RunWork, wanted: Mapping[str, Any], request: requests.Request) -> RunWork:
    """Return the amount of work, changed by the facts that the argument `what_if` supposes."""
    segments, rows = wanted.get("segments", work.segments), wanted.get("rows", sum(work.rows))
    if segments != work.segments or rows != sum(work.rows):
        work = _packed_for(work, segments, rows)
    threads = wanted.get("threads", work.threads)
    if "segments" in wanted and "threads" not in wanted:
        threads = db.server.usual_threads(segments, None)
    epochs = wanted.get("epochs", work.epochs)
    frequency = min(work.frequency, epochs) if work.frequency != work.epochs else epochs
    changed = threads != work.threads or wanted.get("backend", *work.backends[:1]) not in work.backends
    if "backend" in wanted:
        work = _all_on(work, wanted["backend"])
    return replace(
        work,
        threads=threads,
        epochs=epochs,
        frequency=frequency,
        warm=work.warm and not changed and segments <= request.segments,
        compiled=frozenset() if changed else work.compiled,
    )


def _packed_for(work: RunWork, segments: int, rows: int) -> RunWork:
    """Return the amount of work for `rows` rows, packed for `segments` segments."""
    sizes = work.groups and calibrating.placed(work.groups, segments, rows / max(1, sum(work.rows)))
    return replace(
        work,
        rows=calibrating.dealt(rows, segments) if sizes is None else calibrating.rows_at(sizes),
        groups=sizes,
        validation_rows=calibrating.dealt(sum(work.validation_rows), segments),
        sessions=segments,
    )


@dataclass(frozen=True)
class _Measurements:
    """The measurements of earlier runs, and the function that lets the server cancel a long estimate."""

    observations: Sequence[Observation]
    tick: Callable[[], None]

    def rates(self, work: RunWork) -> Rates:
        return Rates(self.observations, work.host_of(0), work.threads, self.tick)


def _about_fit(request: requests.Request, work: RunWork, known: _Measurements, machine: Machine) -> Explained:
    rates = known.rates(work)
    notes = []
    found, limits = estimate(work, rates), request.limits
    if limits.max_visits is not None and limits.max_visits < found.played.visits:
        notes.append(f"the run ends after {counted(limits.max_visits, 'visit')}, whatever is left")
        epochs = max(1, -(-work.epochs * limits.max_visits // found.played.visits))
        found = estimate(replace(work, epochs=epochs), rates)
    if limits.max_seconds is not None:
        notes.append(f"the run ends {counted(limits.max_seconds, 'second')} after its first visit has begun")
        most = found.starting + limits.max_seconds
        low, high = min(found.low, most), min(found.high, most)
        found = replace(found, seconds=min(found.seconds, most), low=low, high=high)
    if request.search is not None:
        notes.append("what gets no better is stopped earlier: this is the most")
    notes += _break_even(work, rates, requests.engines_for(limits))
    bundles: list[Mapping[str, object]] = []
    if work.groups is None:
        bundles = list(fusion.bundles(work, limits.fuse, alone=limits.why_alone))
    return Explained(
        name="Fit",
        estimate=found,
        settings=settings(request, work),
        machine=machine,
        visits_known=rates.visits(work.backends),
        # Bundles of groups are shown with each kind.
        bundles=bundles,
        notes=notes,
    )


def _break_even(work: RunWork, rates: Rates, engines: Sequence[str]) -> list[str]:
    """Return notes that name another engine that saves time on an architecture, and from which epoch on."""
    now = {kind.model_id: kind.backend for kind in work.kinds.values()}
    said: list[str] = []
    for model_id, own in sorted(now.items()):
        for backend in engines:
            epochs = None if backend == own else break_even(work, model_id, backend, rates)
            if epochs is not None and epochs < work.epochs:
                said.append(f"model {model_id}: {backend} pays from epoch {int(epochs) + 1} on")
    return said


def _alternatives(
    db: Database, work: RunWork, known: _Measurements, engines: Sequence[str]
) -> list[Alternative]:
    """Return estimates of the run with other engines, segments and threads, and with fewer evaluations."""
    found: list[Alternative] = []

    def add(name: str, other: RunWork, other_bits: bool) -> None:
        value = estimate(other, known.rates(other), ALTERNATIVE_VISITS)
        found.append(Alternative(name, value, other_bits))

    for backend in engines:
        if [backend] != work.backends:
            add(f"backend {backend}", _with(work, backend=backend), True)
    own = cheapest_engines(work, engines, known.rates(work))
    if len(set(own.values())) > 1 and (mixed := work.on(own)) != work:
        add(f"backend {by_engine(own)}", replace(mixed, compiled=frozenset()), True)
    for segments in sorted({1, db.server.places_for_work()} - {work.segments}):
        threads = db.server.usual_threads(segments, None)
        other = _packed_for(_with(work, threads=threads), segments, sum(work.rows))
        add(
            f"{counted(segments, 'segment')} of {counted(threads, 'thread')}",
            other,
            True,
        )
    models = max(1, len(work.kinds) * work.models)
    if work.segments > models and (threads := db.server.usual_threads(work.segments, models)) > work.threads:
        add(f"{threads} threads", _with(work, threads=threads), True)
    if not work.even and len(work.kinds) > 1 and work.groups is None:
        add("order even", replace(work, even=True), False)
    for every in (5, work.epochs):
        if work.frequency < every <= work.epochs:
            name = "evaluate at the end" if every == work.epochs else f"evaluate every {every} epochs"
            add(name, replace(work, frequency=every), False)
    return found


def _with(work: RunWork, backend: str | None = None, threads: int | None = None) -> RunWork:
    changed = work if backend is None else _all_on(work, backend)
    # Alternatives are compared as if each had to compile everything in its own sessions.
    return replace(changed, threads=threads or work.threads, compiled=frozenset())


def _all_on(work: RunWork, backend: str) -> RunWork:
    return work.on({kind.model_id: backend for kind in work.kinds.values()})


# What a search knows of a config's net and optimizer from the examples that an engine has described.
_SIZES = ("state_bytes", "frozen_bytes", "weight_bytes", "shards", "device_bytes")


def _about_search(
    request: requests.Request,
    work: RunWork,
    known: _Measurements,
    described: Mapping[str, Mapping[str, Any]],
    machine: Machine,
) -> Explained:
    """Return the estimate of a search, which is simulated with invented results of its configs."""
    rates = known.rates(work)
    by_code = {(kind.model_id, kind.compiled): kind for kind in work.kinds.values()}
    by_model = {kind.model_id: kind for kind in work.kinds.values()}
    taken = {kind.name: kind.step_bytes for kind in work.kinds.values()}

    def kind_of(new: StartConfig | Clone) -> ConfigKind:
        row = models.Selected(new.mst_key, new.model_id, new.compile_params, new.fit_params)
        chosen = requests.choose([row])[0]
        facts = described[str(new.model_id)]
        backend = request.engines.find_engine(new.model_id)
        kind = calibrating.kind_of(chosen, backend, calibrating.Net.from_facts(facts))
        kind = calibrating.with_limits(kind, request.limits)
        like = by_code.get((kind.model_id, kind.compiled)) or by_model[kind.model_id]
        return replace(
            kind,
            share=calibrating.share(None, None, request.limits),
            step_bytes=taken.get(kind.name),
            **{name: getattr(like, name) for name in _SIZES},
        )

    search = request.search or {}
    stops = not brings_configs(search)
    begins = work if stops else replace(work, kinds={})
    played = scenarios(lambda: build(search), begins, lambda: Prices(work, rates), kind_of)
    found = [summarize(own, rates, course) for own, course in played]
    middle = sorted(found, key=lambda one: one.seconds)[len(found) // 2]
    counts = sorted({len(one.work.kinds) for one in found})
    configs = f"{counts[0]} configs" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} configs"
    exact = len({one.played.visits for one in found}) == 1
    notes = [] if exact else ["how much is trained depends on the results: the range covers invented ones"]
    return Explained(
        name="Fit with early stopping" if stops else f"Search by {search['method']}",
        estimate=middle,
        settings=settings(request, work),
        machine=machine,
        visits_known=rates.visits(work.backends),
        low=min(one.low for one in found),
        high=max(one.high for one in found),
        configs=configs,
        notes=notes,
    )


def settings(request: requests.Request, work: RunWork) -> Mapping[str, Any]:
    return {
        "backend": by_engine({kind.model_id: kind.backend for kind in work.kinds.values()}),
        "segments": work.segments,
        "threads": work.threads,
        "epochs": work.epochs,
        "metrics_compute_frequency": work.frequency,
        "memory_mb": work.memory_mb,
        "seed": request.seed,
        "average_from_epoch": work.average_from,
        "use_gpus": request.engines.use_gpus or None,
    }
