"""Settle which configs of a run share visits, and send the caller a notice of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.executor.plans import calibrating
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.options import EXACT, FAST, OFF
from cerebro_plpy.logical.search.build import brings_configs
from cerebro_plpy.planner import fusion
from cerebro_plpy.planner.estimating.work import ConfigKind
from cerebro_plpy.planner.units import Alike
from cerebro_plpy.store import session
from cerebro_plpy.store.runs import runs

# The most reasons of which the caller is told; the plan has all of them.
MOST_TOLD = 5


def settled(request: requests.Request) -> requests.Request:
    """Return the request with the facts that decide which configs share visits, unless it already has them.

    The facts are stored because they may change: the table may grow before the run is resumed, and a run that
    replays this run may have another memory budget.
    """
    if request.limits.small_nets:
        return request
    tables = [data for data in (request.source, request.validation) if data is not None]
    size = sum(calibrating.row_bytes(data.summary) * data.summary.total_rows for data in tables)
    found = {
        "rows": calibrating.segment_rows(request.source, request.segments)[0],
        "in_memory": size <= request.engines.memory_mb * 2**20,
    }
    return replace(request, limits=replace(request.limits, small_nets=found))


def facts(db: Database, request: requests.Request) -> fusion.FusionFacts:
    found = settled(request).limits.small_nets
    return fusion.FusionFacts(
        asked=request.limits.fuse,
        rows=found["rows"],
        segments=request.segments,
        epochs=request.epochs,
        threads=request.engines.threads,
        host=db.server.segment_hosts(request.source.summary)[0],
        in_memory=found["in_memory"],
        averages=request.limits.average_from is not None,
        alone=request.limits.why_alone,
    )


def alike(db: Database, request: requests.Request, run_id: int) -> Callable[[runs.ConfigRow], Alike | None]:
    """Return a function that takes a config and returns its mark, or None.

    Configs with equal marks may share visits. A config whose mark is None has visits of its own.
    """
    known, folds = facts(db, request), request.source.summary.folds
    searches = brings_configs(request.search)
    nets: dict[int, calibrating.Net] = {}
    groups = request.groups.rows if request.groups else {}

    @cache
    def read(model_id: int, compile_params: str, fit_params: str, backend: str) -> ConfigKind:
        if model_id not in nets:
            nets.update(calibrating.nets_of_run(db, run_id))
        row = runs.ConfigRow(0, model_id, compile_params, fit_params, backend)
        return calibrating.with_limits(calibrating.kind_of(row, backend, nets[model_id]), request.limits)

    def kind(config: runs.ConfigRow | requests.Chosen, backend: str) -> ConfigKind:
        found = read(config.model_id, config.compile_params, config.fit_params, backend)
        return replace(found, share=calibrating.share(config.fold, folds, request.limits))

    @cache
    def lanes() -> Counter[tuple[str, int]]:
        return Counter(
            (fusion.program(kind(c, request.engines.find_engine(c.model_id))), c.key % request.segments)
            for c in request.configs
            if c.group_id is None
        )

    def find_alike(row: runs.ConfigRow) -> Alike | None:
        if row.group_id is not None:
            # A group that is cut over segments has visits of its own.
            home = groups[row.group_id].home is not None
            return _of_group(known, kind(row, row.backend)) if home else None
        own = kind(row, row.backend)
        beside = None if searches else lanes()[fusion.program(own), row.key % request.segments]
        return fusion.alike(known, own, beside, row.epochs_before)

    return find_alike


def _of_group(known: fusion.FusionFacts, kind: ConfigKind) -> Alike:
    if known.asked == FAST and known.why_not_batched(kind) is None:
        return Alike(fusion.program(kind), FAST)
    return Alike(fusion.program(kind), OFF if known.asked == OFF or known.alone is not None else EXACT)


def check(request: requests.Request) -> None:
    """Raise an error if `fuse` asks for the batched form ("fast") and no engine of the run has that form."""
    if request.limits.fuse == FAST and fusion.JAX not in request.backends:
        raise CerebroError(
            f"option fuse is {FAST}, and {' and '.join(request.backends)} has no such form",
            hint='Train with {"backend": "jax"}, or leave the option out.',
            sqlstate=NOT_SUPPORTED,
        )


def tell(
    db: Database,
    request: requests.Request,
    examples: Sequence[requests.Chosen],
    described: Mapping[str, Mapping[str, Any]],
) -> None:
    """Send notices that say which configs train in the batched form, and why other configs do not.

    Do nothing unless the option `fuse` asks for the batched form ("fast").
    """
    if request.limits.fuse != FAST:
        return
    known = facts(db, request)
    reasons: dict[str, set[int]] = {}
    batched: set[int] = set()
    for config in examples:
        backend = request.engines.find_engine(config.model_id)
        kind = calibrating.kind_of(
            config, backend, calibrating.Net.from_facts(described[str(config.model_id)])
        )
        why = known.why_not_batched(kind)
        (batched if why is None else reasons.setdefault(why, set())).add(config.key)
    if batched:
        db.notice(
            f"fuse {FAST}: {_configs(batched)} in the batched form: the same bits every time, other last bits"
            " than alone"
        )
    for why, keys in list(reasons.items())[:MOST_TOLD]:
        db.notice(f"fuse {FAST}: not {_configs(keys)}: {why}")


def _configs(keys: set[int]) -> str:
    shown = ", ".join(map(str, sorted(keys)[:MOST_TOLD]))
    more = f" and {len(keys) - MOST_TOLD} more" if len(keys) > MOST_TOLD else ""
    return f"config{'s' if len(keys) > 1 else ''} {shown}{more}"


def replayed(db: Database, request: requests.Request) -> requests.Request:
    """Return the request with those options of the replayed run that change the last bits of nets.

    These are `recompute`, `device_memory_mb` and `fuse`. Options that the call gives itself stay.
    """
    run_id = request.limits.replay
    if run_id is None:
        return request
    known = runs.limits(runs.own_run(db, run_id, session.current_user(db)))
    limits = replace(
        request.limits,
        # The last bits of a net may depend on these, also where the call names a form of fusion.
        recompute=request.limits.recompute or known.get("recompute") or False,
        device_memory_mb=request.limits.device_memory_mb or known.get("device_memory_mb"),
    )
    if limits.fuse is None:
        limits = replace(limits, fuse=known.get("fuse"), small_nets=known.get("small_nets") or {})
    return replace(request, limits=limits)
