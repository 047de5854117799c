"""Settle the engine of groups and the choices left to the planner, before the run is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import PROGRAM_LIMIT_EXCEEDED, CerebroError
from cerebro_plpy.executor.plans import calibrating
from cerebro_plpy.executor.starting import cutting, groups
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.budget import Aim
from cerebro_plpy.logical.options import BACKENDS
from cerebro_plpy.planner.choosing import Settled, by_engine, choose, fits_memory
from cerebro_plpy.planner.estimating.estimates import Estimate
from cerebro_plpy.planner.estimating.simulation import MB
from cerebro_plpy.planner.explanation import counted
from cerebro_plpy.planner.fusion import JAX
from cerebro_plpy.planner.tree import seconds as spelled
from cerebro_plpy.predicting.models import is_dense
from cerebro_plpy.store import session
from cerebro_plpy.store.models import functions as registry
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.runs import results, runs

# JAX pays for so many groups, of at most so many sizes.
MANY_GROUPS, SIZES_COMPILED = 100, 3


def with_usual_engine(
    db: Database,
    request: requests.Request,
    examples: Sequence[requests.Chosen],
    earlier: Sequence[Table] | None = None,
) -> requests.Request:
    """Return the request with the engine that is usual for it, unless the call or a setting names one.

    A run that goes on from `earlier` result tables, or that replays another run, stays on the engines of that
    run, and so do the bits. JAX is usual for many groups: it trains many small nets in half the time of
    TensorFlow, but compiles each size of a group anew. So it is chosen only if the groups have few sizes, and
    for nets without convolutions and recurrent layers. Functions of users may be written for TensorFlow.
    """
    engines, among = request.engines, request.choosable
    if not engines.is_default or (among is not None and among.backends):
        return request
    if earlier is not None:
        return request.on(_engines_before(db, engines, earlier))
    if request.limits.replay is not None:
        run = runs.own_run(db, request.limits.replay, session.current_user(db))
        return request.on(_with_engines_of(db, engines, run))
    if request.groups is None:
        return request
    sizes = (groups.rows_trained(request) or {}).values()
    pays = len(sizes) >= MANY_GROUPS and len({*sizes}) <= SIZES_COMPILED and request.validation is None
    if not pays or request.object_table is not None or not session.engines_here(JAX):
        return request
    nets = [architecture.model_arch for architecture in request.architectures]
    own = registry.needed(db, [config.compile_params for config in examples], nets)
    return request if own or not all(map(is_dense, nets)) else request.on(replace(engines, backend=JAX))


def _engines_before(db: Database, given: requests.Engines, earlier: Sequence[Table]) -> requests.Engines:
    """Return the engines of the models in result tables, as far as this server has them."""
    found = results.engines_of(db, earlier[1].quoted)
    here = {name for name in BACKENDS if session.engines_here(name)}
    for name in sorted({*found.values()} - here):
        db.notice(f"the models were trained on {name}, which is not here: they go on with another engine")
    return replace(given, by_model={model_id: name for model_id, name in found.items() if name in here})


def _with_engines_of(db: Database, given: requests.Engines, run: runs.RunRow) -> requests.Engines:
    backend, by_model = runs.engines_of(run, runs.configs(db, run.run_id))
    return replace(given, backend=backend, by_model=by_model)


def replayed(db: Database, request: requests.Request) -> requests.Request:
    """Return the request with the planner's choices of the run that it replays.

    If the request replays no run, or leaves the planner no choice, it is returned unchanged.
    """
    run_id = request.limits.replay
    if run_id is None or request.choosable is None:
        return request
    run = runs.own_run(db, run_id, session.current_user(db))
    engines = request.engines
    if len(request.choosable.backends) > 1:
        engines = _with_engines_of(db, engines, run)
    frequency = run.metrics_frequency if request.choosable.measures else None
    return replace(request.on(replace(engines, threads=run.threads), frequency), choosable=None)


def settled(
    db: Database,
    request: requests.Request,
    examples: Sequence[requests.Chosen],
    described: Mapping[str, Mapping[str, Any]],
    *,
    one_engine: bool = False,
    tells: bool = True,
) -> requests.Request:
    """Return the request with the planner's choices; raise an error if no plan meets the call's limits.

    With `one_engine`, the planner does not choose between engines. With `tells`, a notice reports the
    choices.
    """
    if (among := request.choosable) is None:
        return request
    if one_engine:
        # A process has one engine for as long as it lives.
        among = replace(among, backends=())
    # The outputs of frozen layers that are computed once take memory too.
    cut = cutting.settled(request, examples, described)
    work = calibrating.work_of(db, cut, examples, described)
    choice, fits = choose(work, among, calibrating.observations(db))
    if not fits:
        raise _beyond(choice.estimate, among.aim or Aim())
    if tells:
        db.notice(f"chosen by the planner: {_told(choice)}")
    return replace(request.on(_engines(request.engines, choice), choice.frequency), choosable=None)


def _engines(given: requests.Engines, choice: Settled) -> requests.Engines:
    """Return the engines that the planner chose: the most frequent one for the run, others by `model_id`."""
    names = list(choice.backends.values())
    most = max(sorted(set(names)), key=names.count)
    others = {model_id: name for model_id, name in choice.backends.items() if name != most}
    return replace(given, backend=most, by_model=others, threads=choice.threads)


def _told(choice: Settled) -> str:
    often, epochs = choice.frequency, choice.estimate.work.epochs
    measured = "at the end" if often >= epochs else f"every {often} epochs" if often > 1 else "every epoch"
    return f"backend {by_engine(choice.backends)}, threads {choice.threads}, metrics {measured}"


def _beyond(nearest: Estimate, aim: Aim) -> CerebroError:
    """Return the error which says that no plan meets the limits of time and memory.

    The hint names a remedy, such as fewer epochs. `nearest` is the estimate of the plan that comes closest.
    """
    work = nearest.work
    if not fits_memory(nearest, aim):
        least = -(-nearest.session_bytes * work.sessions // MB)
        return CerebroError(
            f"no plan needs at most {aim.memory_mb} MB: the least is {least} MB",
            detail=f"That is for {counted(work.sessions, 'segment')}, each with rows, engine and nets.",
            hint="Give more memory, lower memory_mb of the options, or pack the table for fewer segments.",
            sqlstate=PROGRAM_LIMIT_EXCEEDED,
        )
    fixed = nearest.starting + nearest.around
    epochs = int(max(0.0, (aim.within or 0) - fixed) / ((nearest.seconds - fixed) / work.epochs))
    return CerebroError(
        f"no plan takes at most {spelled(aim.within or 0)}: the fastest takes {spelled(nearest.seconds)}",
        detail=f"Its range is {spelled(nearest.low)} to {spelled(nearest.high)}.",
        hint=f"Train {counted(epochs, 'epoch')}, or fewer configs."
        if epochs
        else "Train fewer configs or rows.",
        sqlstate=PROGRAM_LIMIT_EXCEEDED,
    )
