"""Find the kinds of a run's configs, and the times of each kind, from which later runs are estimated.

Configs are of one kind if their visits take equally long.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.database import Database
from cerebro_plpy.executor.plans.diagnose import ENGINES
from cerebro_plpy.executor.starting import cutting
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.budget import Limits, count_most_measured
from cerebro_plpy.logical.options import OFF
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.inputs import inputs_of
from cerebro_plpy.madlib.params import parse_compile, parse_fit
from cerebro_plpy.packing.rows import placing
from cerebro_plpy.planner.estimating import calibration
from cerebro_plpy.planner.estimating.rates import Observation, Rates
from cerebro_plpy.planner.estimating.work import Code, ConfigKind, GroupSizes, RunWork, digest
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.groups import GroupRow
from cerebro_plpy.store.runs import rates, runs

# The visits of a run that are read: it may have a million, but the first ones tell enough.
MOST_VISITS = 20_000


def segment_rows(data: requests.Data | None, segments: int) -> list[int]:
    """Return the number of rows on each segment, for a packed table whose rows are distributed evenly."""
    return dealt(0 if data is None else data.summary.total_rows, segments)


def dealt(total: int, segments: int) -> list[int]:
    return [total // segments + (number < total % segments) for number in range(segments)]


def row_bytes(summary: packed.PackedSummary) -> float:
    """Return the bytes of a row in memory: 4 for each number, 2 for each class of a label."""
    features = 4 * sum(math.prod(shape) for shape in summary.input_shapes)
    widths = zip(summary.target_shapes, summary.one_hot, strict=True)
    return features + sum(math.prod(shape) * (2 if one_hot else 4) for shape, one_hot in widths)


@dataclass(frozen=True)
class Net:
    """An architecture, with its number of parameters and its numbers of operations (`work`)."""

    model_arch: str
    work: Mapping[str, float]
    parameters: int

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Net:
        """Return a net made from an engine's description of an architecture."""
        return cls(facts["json"], facts["work"], facts["parameters"])

    @classmethod
    def of_run(cls, row: runs.ArchitectureRow) -> Net:
        return cls(row.model_arch, json.loads(row.work or "{}"), row.parameters)


def kind_of(
    config: requests.Chosen | runs.ConfigRow,
    backend: str,
    net: Net,
    sizes: Mapping[str, int] | None = None,
) -> ConfigKind:
    """Return the kind of a config: all facts that decide how long its visits take."""
    with registered.checked_before():
        params = parse_compile(config.compile_params)
    fit = parse_fit(config.fit_params)
    architecture = digest(net.model_arch)
    return ConfigKind(
        model_id=config.model_id,
        architecture=architecture,
        compiled=digest(
            architecture,
            params.compile_key(inputs_of(params, backend, net.model_arch)),
            *fit.thawed(),
        ),
        batch_size=fit.batch_size,
        passes=fit.epochs,
        backend=backend,
        work=net.work,
        parameters=net.parameters,
        state_bytes=(sizes or {}).get("state_bytes", 0),
        frozen_bytes=(sizes or {}).get("frozen_bytes", 0),
        weight_bytes=(sizes or {}).get("weight_bytes", 4 * net.parameters),
        shards=(sizes or {}).get("shards", 1),
        device_bytes=(sizes or {}).get("device_bytes", 0),
        fit=fit.to_json(),
        thaws=bool(fit.unfreeze_at),
    )


class _CompiledHere(set[tuple[int, Code]]):
    """Pairs of a number of threads and a piece of code that this session's segment sessions have compiled."""


def compiled_here(engines: requests.Engines) -> frozenset[Code]:
    known = memory.get_instance(_CompiledHere)
    return frozenset(code for threads, code in known if threads == engines.threads)


def work_of(
    db: Database,
    request: requests.Request,
    examples: Sequence[requests.Chosen],
    described: Mapping[str, Mapping[str, Any]],
    warm: bool = False,
) -> RunWork:
    """Return the amount of work of a call, as numbers from which its time is estimated."""
    engines = request.engines
    # A config is described once for all its folds.
    known = {c.key: _described_kind(c, engines.find_engine(c.model_id), described) for c in examples}
    known = {key: with_limits(kind, request.limits) for key, kind in known.items()}
    if not db.server.shares_frozen:
        known = {key: _with_whole_states(kind) for key, kind in known.items()}
    configs = request.configs if request.cross_validates else examples
    folds = request.source.summary.folds
    in_groups = request.groups is not None
    sizes = group_sizes(request) if in_groups else None
    kinds = {
        (c.key if in_groups else c.mst_key): replace(known[c.key], share=share(c.fold, folds, request.limits))
        for c in configs
    }
    return RunWork(
        kinds=kinds,
        groups=sizes,
        rows=segment_rows(request.source, request.segments) if sizes is None else rows_at(sizes),
        validation_rows=segment_rows(request.validation, request.segments),
        row_bytes=row_bytes(request.source.summary),
        epochs=request.epochs,
        frequency=request.metrics_frequency,
        seed=request.seed,
        threads=engines.threads,
        sessions=request.segments,
        memory_mb=engines.memory_mb,
        hosts=db.server.segment_hosts(request.source.summary),
        even=request.limits.even,
        average_from=request.limits.average_from,
        warm=warm,
        compiled=compiled_here(engines) if warm else frozenset(),
        given_weights=frozenset(a.model_id for a in request.architectures if a.has_weights),
        epochs_per_pass=request.limits.epochs_per_pass or 1,
        training_metrics=request.limits.training_metrics,
        use_gpus=engines.use_gpus,
    )


def group_sizes(request: requests.Request) -> GroupSizes:
    """Return the number of rows of each group that a call trains.

    Groups that are on one segment are listed under it; groups on all segments have a list of their own.
    """
    known = request.groups.rows if request.groups else {}
    numbers = {config.group_id for config in request.configs if config.group_id is not None}
    return sizes_of(
        [known[number] for number in sorted(numbers)],
        request.segments,
        fallback=any(config.group_id is None for config in request.configs),
        limits=request.limits,
    )


def sizes_of(found: Sequence[GroupRow], segments: int, *, fallback: bool, limits: Limits) -> GroupSizes:
    at_home: list[list[int]] = [[] for _ in range(segments)]
    cut: list[int] = []
    for group in found:
        (cut if group.home is None else at_home[group.home]).append(group.rows)
    as_one = limits.fuse != OFF and limits.why_alone is None
    return GroupSizes(at_home, cut, fallback, as_one, limits.checkpoint_every)


def rows_at(sizes: GroupSizes) -> list[int]:
    """Return the number of rows on each segment, summed over all groups."""
    on_each = dealt(sum(sizes.cut), len(sizes.at_home))
    return [sum(own) + shared for own, shared in zip(sizes.at_home, on_each, strict=True)]


def placed(sizes: GroupSizes, segments: int, factor: float = 1.0) -> GroupSizes:
    """Return group sizes multiplied by `factor`, as they would be if packed for this number of segments."""
    rows = [max(1, round(size * factor)) for size in sizes.sizes]
    at_home: list[list[int]] = [[] for _ in range(segments)]
    cut: list[int] = []
    for size, home in zip(rows, placing.homes(rows, segments), strict=True):
        (cut if home == placing.EVERYWHERE else at_home[home]).append(size)
    return replace(sizes, at_home=at_home, cut=cut)


def _described_kind(
    config: requests.Chosen, backend: str, described: Mapping[str, Mapping[str, Any]]
) -> ConfigKind:
    facts = described[str(config.model_id)]
    sizes = facts["sizes"].get(config.mst_key) or facts["sizes"].get(str(config.mst_key))
    return kind_of(config, backend, Net.from_facts(facts), sizes)


def with_limits(kind: ConfigKind, limits: Limits) -> ConfigKind:
    """Return a kind of config without the frozen layers that the run computes only once.

    Options that change the compiled code (`recompute`, `device_memory_mb`) become part of the kind.
    """
    trunk = cutting.chosen(limits.cuts, kind.model_id)
    if limits.recompute:
        kind = replace(kind, compiled=digest(kind.compiled, "again", json.dumps(limits.recompute)))
    if limits.device_memory_mb:
        kind = replace(kind, compiled=digest(kind.compiled, "shards", str(limits.device_memory_mb)))
    return kind if trunk is None else kind.cut(trunk)


def _with_whole_states(kind: ConfigKind) -> ConfigKind:
    return replace(kind, state_bytes=kind.state_bytes + kind.frozen_bytes, frozen_bytes=0)


def share(fold: int | None, folds: int | None, limits: Limits) -> float:
    """Return the share of all rows that a config trains on in an epoch; it leaves out `fold`, if given."""
    left = 1.0 if fold is None or folds is None else 1 - 1 / folds
    return left / (limits.epochs_per_pass or 1)


def kinds_of_run(db: Database, run_id: int) -> dict[int, ConfigKind]:
    """Return the kind of each config of a stored run, by `mst_key`."""
    nets, rows = nets_of_run(db, run_id), runs.configs(db, run_id)
    limits = Limits(**runs.limits(runs.run(db, run_id)))
    folds = max((row.fold for row in rows if row.fold is not None), default=None)
    return {
        row.mst_key: replace(
            with_limits(kind_of(row, row.backend, nets[row.model_id]), limits),
            share=share(row.fold, folds, limits),
        )
        for row in rows
    }


def nets_of_run(db: Database, run_id: int) -> dict[int, Net]:
    return {a.model_id: Net.of_run(a) for a in runs.architectures(db, run_id)}


def visit_seconds(
    db: Database, request: requests.Request, nets_now: Callable[[], Mapping[int, Net]]
) -> Callable[[runs.ConfigRow], tuple[str, float]]:
    """Return a function that returns the name of a config's kind, and the expected seconds of one visit.

    `nets_now` is called for the nets of the run when a config has a net that is not known yet.
    """
    engines = request.engines
    # On Greenplum a config visits segments on several hosts: the rates of the first host are near enough.
    first = db.server.segment_hosts(request.source.summary)[0]
    known_rates = Rates(observations(db), first, engines.threads)
    rows = request.source.summary.total_rows // request.segments
    groups = request.groups.rows if request.groups else {}
    nets: dict[int, Net] = {}
    known: dict[str, float] = {}
    kinds: dict[int, ConfigKind] = {}

    def kind_as_known(row: runs.ConfigRow) -> ConfigKind:
        if row.config_key is None or row.config_key not in kinds:
            if row.model_id not in nets:
                nets.update(nets_now())
            kinds[row.key] = with_limits(kind_of(row, row.backend, nets[row.model_id]), request.limits)
        return kinds[row.key]

    def name_and_seconds(row: runs.ConfigRow) -> tuple[str, float]:
        kind = kind_as_known(row)
        if row.group_id is not None:
            # Groups of any size count as one kind: they are estimated by their batches.
            batches = kind.passes * -(-groups[row.group_id].rows // kind.batch_size)
            each = batches * known_rates.batch(kind).seconds / request.segments
            return f"{kind.name} {kind.passes} groups", each
        part = share(row.fold, request.source.summary.folds, request.limits)
        name = f"{kind.name} {kind.passes} {part:.3g}"
        if name not in known:
            batches = kind.passes * -(-int(rows * part) // kind.batch_size)
            known[name] = batches * known_rates.batch(kind).seconds + known_rates.resting().seconds
        return name, known[name]

    return name_and_seconds


def measured(db: Database, run_id: int, request: requests.Request) -> list[rates.RateRow]:
    """Return the times that a run measured for each kind of config and host; none if it trains on groups."""
    if request.groups is not None:
        # The time that many small nets take together says nothing of one.
        return []
    kinds = kinds_of_run(db, run_id)
    parts = request.limits.epochs_per_pass or 1
    rows = {
        # An evaluation measures the rows of one epoch.
        "training": [number // parts for number in segment_rows(request.source, request.segments)],
        "validation": [
            count_most_measured(rows, parts) for rows in segment_rows(request.validation, request.segments)
        ],
    }
    engines = request.engines
    memory.get_instance(_CompiledHere).update((engines.threads, k.code) for k in kinds.values())
    visits = [calibration.VisitTime(**row) for row in rates.visits(db, run_id, MOST_VISITS)]
    evaluations = [calibration.EvaluationTime(**row) for row in rates.evaluations(db, run_id)]
    hosts = db.server.segment_hosts(request.source.summary)
    found: list[rates.RateRow] = []
    for host in sorted(set(hosts)):
        times = calibration.calibrate(
            kinds,
            [visit for visit in visits if hosts[visit.segment] == host],
            [evaluation for evaluation in evaluations if hosts[evaluation.segment] == host],
            rows,
            row_bytes(request.source.summary),
        )
        found += [_row(run_id, request, host, one) for one in times]
    return found


def _row(run_id: int, request: requests.Request, host: str, times: calibration.KindTimes) -> rates.RateRow:
    kind = times.kind
    return rates.RateRow(
        run_id=run_id,
        host=host,
        backend=kind.backend,
        threads=request.engines.threads,
        versions=versions_of(kind.backend),
        kind=kind.name,
        architecture=kind.architecture,
        compiled=kind.compiled,
        batch_size=kind.batch_size,
        work=json.dumps(dict(kind.work)),
        parameters=kind.parameters,
        state_bytes=times.state_bytes,
        visits=times.visits,
        batch_seconds=times.batch_seconds,
        compile_seconds=times.compile_seconds,
        write_seconds=times.write_seconds,
        rest_seconds=times.rest_seconds,
        evaluation_seconds=times.evaluation_seconds,
        read_seconds=times.read_seconds,
    )


@functools.cache
def versions_of(backend: str) -> str:
    """Return the versions of an engine's packages and of Keras as text; they decide the engine's speed."""
    found = []
    for name in (*ENGINES[backend], "keras"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(found)


def observations(db: Database, before: int | None = None) -> Sequence[Observation]:
    """Return the times that earlier runs measured on this server with the installed engine versions.

    With `before`, only runs with a smaller `run_id` count.
    """
    current = {backend: versions_of(backend) for backend in ENGINES}
    rows: list[dict[str, Any]] = [dict(row) for row in rates.known(db, before)]
    return [Observation(**row) for row in rows if row.pop("versions") == current.get(row["backend"])]


def code_before(db: Database, run_id: int) -> frozenset[Code]:
    """Return the code that a run's sessions had compiled before the run began; empty for new sessions."""
    found = rates.code_before(db, run_id)
    return frozenset((row["backend"], row["compiled"], row["batch_size"]) for row in found)
