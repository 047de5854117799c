"""cerebro.explain_run: compare the time of a run with an estimate from measurements of earlier runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from cerebro_plpy.database import Database, Row
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.executor.plans import calibrating, explain
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.budget import Limits
from cerebro_plpy.planner.estimating.estimates import Estimate, estimate, summarize
from cerebro_plpy.planner.estimating.rates import Rates
from cerebro_plpy.planner.estimating.searching import MOST_PLAYED
from cerebro_plpy.planner.estimating.simulation import Prices, configs_of, plan_of, play
from cerebro_plpy.planner.estimating.work import ConfigKind, RunWork
from cerebro_plpy.planner.explanation import Explained, bill, nodes, tree
from cerebro_plpy.planner.gpus import HERE
from cerebro_plpy.planner.tree import NODE_TYPE, PLANS, Node
from cerebro_plpy.store import session
from cerebro_plpy.store.packed.groups import GroupRow
from cerebro_plpy.store.runs import rates as store
from cerebro_plpy.store.runs import run_groups, runs


def explain_run(db: Database, run_id: int | None, format: str | None) -> list[str]:
    explain.PlanWanted(format, None).check()
    run = runs.own_run(db, run_id, session.current_user(db), members=True)
    visits = store.visits(db, run.run_id)
    status = store.standing(db, run.run_id)
    found_groups = run_groups.read(db, run.run_id)
    if found_groups:
        units = {row.mst_key: row for row in runs.configs(db, run.run_id)}
        # Times are shown by config, whatever the group.
        visits = [{**visit, "mst_key": units[visit["mst_key"]].key} for visit in visits]
        epochs: Mapping[int, int] = {}
        work = _work_on_groups(db, run, visits, found_groups, list(units.values()))
    else:
        work, epochs = _work(db, run, visits, status["status"])
    observed = calibrating.observations(db, before=run.run_id)
    rates = Rates(observed, work.host_of(0), work.threads)
    found = _estimate(work, rates, epochs)
    about = Explained(
        name=f"Run {run.run_id}, {status['status']}",
        estimate=found,
        settings={
            "backend": ", ".join(work.backends),
            "segments": work.segments,
            "threads": work.threads,
            "epochs": run.epochs,
            "metrics_compute_frequency": run.metrics_frequency,
            "memory_mb": run.memory_mb,
            "seed": run.seed,
            "average_from_epoch": work.average_from,
        },
        machine=explain.machine(db),
        visits_known=rates.visits(work.backends),
    )
    cost = store.cost(db, run.run_id)
    spent = bill(about.machine.tariff, cost["core_seconds"], cost["gpu_seconds"], lead="Actual ")
    actual = {
        **_actual(work, visits, store.evaluations(db, run.run_id), status),
        "spent": {
            "Actual Moved State Bytes": cost["moved_bytes"],
            "Actual Kept State Bytes": cost["stored_bytes"],
            **spent,
        },
    }
    return explain.show(_beside(tree(about), nodes(found), work, actual), format or "text")


def _estimate(work: RunWork, rates: Rates, epochs: Mapping[int, int]) -> Estimate:
    """Return the estimate of a run; a config that was stopped counts with the epochs that it trained.

    If the run is too large to be simulated, all its configs count with all epochs.
    """
    if work.groups is not None:
        return estimate(work, rates)
    prices = Prices(work, rates)
    configs = configs_of(work, prices, 0)
    for key, config in configs.items():
        config.until = epochs.get(key, work.epochs)
    if sum(c.until for c in configs.values()) * work.segments * len(configs) > MOST_PLAYED:
        return estimate(work, rates)
    played = play(plan_of(work, configs, work.epochs), work, prices, work.kinds.__getitem__)
    return summarize(work, rates, played)


def _work(
    db: Database, run: runs.RunRow, visits: Sequence[Row], status: str
) -> tuple[RunWork, Mapping[int, int]]:
    """Return the amount of work of a run, and the number of epochs that each config has trained.

    While a run without a search goes on, the mapping of epochs is empty, which stands for all epochs.
    """
    kinds = calibrating.kinds_of_run(db, run.run_id)
    sizes = {v["mst_key"]: v["state_bytes"] for v in visits}
    kinds = {key: _sized(kind, sizes.get(key)) for key, kind in kinds.items()}
    found = _rows_of_run(db, run, visits)
    code = calibrating.code_before(db, run.run_id)
    done = Counter(v["mst_key"] for v in visits)
    ended = run.search is not None or status not in ("running", "paused")
    epochs = {key: -(-done[key] // run.segments) for key in kinds} if ended else {}
    return (
        RunWork(
            kinds=kinds,
            rows=found.training,
            validation_rows=found.validation,
            row_bytes=found.row_bytes,
            epochs=run.epochs,
            frequency=run.metrics_frequency,
            seed=run.seed,
            threads=run.threads,
            # A session that was lost has been replaced, so there may be more pids than sessions.
            sessions=min(run.segments, len({v["pid"] for v in visits}) or run.segments),
            memory_mb=run.memory_mb,
            hosts=found.hosts,
            even=bool(runs.limits(run).get("even")),
            average_from=runs.limits(run).get("average_from"),
            training_metrics=runs.limits(run).get("training_metrics", True),
            epochs_per_pass=runs.limits(run).get("epochs_per_pass") or 1,
            use_gpus=run.use_gpus,
            # A run begins only after its sessions have started.
            warm=True,
            compiled=code,
        ),
        epochs,
    )


def _work_on_groups(
    db: Database,
    run: runs.RunRow,
    visits: Sequence[Row],
    found: Mapping[int, GroupRow],
    units: Sequence[runs.ConfigRow],
) -> RunWork:
    """Return the amount of work of a run on groups; the number of epochs is the mean over its models."""
    nets, sizes = calibrating.nets_of_run(db, run.run_id), {v["mst_key"]: v["state_bytes"] for v in visits}
    one_each = {row.key: row for row in units}
    numbers = {row.group_id for row in units if row.group_id is not None}
    groups = calibrating.sizes_of(
        [found[number] for number in sorted(numbers)],
        run.segments,
        fallback=any(row.group_id is None for row in units),
        limits=Limits(**runs.limits(run)),
    )
    source = validation = None
    with suppress(CerebroError):
        source, validation = requests.training_and_validation(db, run.source_table, run.validation_table)
    last = [standing.step for standing in runs.standings(db, run.run_id).values()]
    done = sum(last) // run.segments / max(1, len(last))
    return RunWork(
        kinds={
            key: _sized(calibrating.kind_of(row, row.backend, nets[row.model_id]), sizes.get(key))
            for key, row in one_each.items()
        },
        groups=groups,
        rows=calibrating.rows_at(groups),
        validation_rows=calibrating.segment_rows(validation, run.segments),
        row_bytes=0.0 if source is None else calibrating.row_bytes(source.summary),
        epochs=max(1, round(done)),
        frequency=min(run.metrics_frequency, max(1, round(done))),
        seed=run.seed,
        threads=run.threads,
        sessions=min(run.segments, len({v["pid"] for v in visits}) or run.segments),
        memory_mb=run.memory_mb,
        hosts=[HERE] if source is None else db.server.segment_hosts(source.summary),
        warm=True,
        compiled=calibrating.code_before(db, run.run_id),
    )


def _sized(kind: ConfigKind, state_bytes: int | None) -> ConfigKind:
    return replace(kind, state_bytes=state_bytes or kind.state_bytes)


@dataclass(frozen=True)
class _RowsOfRun:
    """The numbers of rows on each segment, the bytes of a row, and the hosts of the segments."""

    training: Sequence[int]
    validation: Sequence[int]
    row_bytes: float
    hosts: Sequence[str]


def _rows_of_run(db: Database, run: runs.RunRow, visits: Sequence[Row]) -> _RowsOfRun:
    """Return the numbers of rows on each segment, from the packed tables if these fit the run's visits.

    Otherwise the numbers come from the visits, since the tables may be gone or replaced.
    """
    seen: dict[int, int] = {v["segment"]: v["rows"] for v in visits}
    with suppress(CerebroError):
        source, validation = requests.training_and_validation(db, run.source_table, run.validation_table)
        there = calibrating.segment_rows(source, run.segments)
        if source.summary.folds is not None or all(there[s] == rows for s, rows in seen.items()):
            return _RowsOfRun(
                there,
                calibrating.segment_rows(validation, run.segments),
                calibrating.row_bytes(source.summary),
                db.server.segment_hosts(source.summary),
            )
    usual = int(mean(seen.values())) if seen else 0
    return _RowsOfRun([seen.get(s, usual) for s in range(run.segments)], [0] * run.segments, 0.0, [HERE])


def _actual(
    work: RunWork, visits: Sequence[Row], evaluations: Sequence[Row], status: Row
) -> Mapping[str, Any]:
    """Return the times that a run took, in total and for each kind of config."""
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for visit in visits:
        kind = work.kinds.get(visit["mst_key"])
        if kind is not None:
            by_kind[kind.name].update(
                {
                    "Actual Training Time": visit["train_seconds"],
                    "Actual Read Time": visit["read_seconds"],
                    "Actual Write Time": visit["write_seconds"],
                }
            )
    return {
        "kinds": by_kind,
        "evaluating": sum(e["seconds"] for e in evaluations),
        "seconds": status["seconds"],
        "seconds_left": status["seconds_left"],
        "visits": len(visits),
    }


def _beside(node: Node, parts: Sequence[Node], work: RunWork, actual: Mapping[str, Any]) -> Node:
    """Return the tree of the explanation, with measured times beside the estimates."""
    placed: list[Node] = []
    for part in parts:
        if part[NODE_TYPE] == "Train":
            kind = work.kinds[part["Configs"][0]]
            took = actual["kinds"].get(kind.name, {})
            part = {**part, "Actual Work Time": sum(took.values()), **took}
        elif part[NODE_TYPE] == "Evaluate":
            part = {**part, "Actual Work Time": actual["evaluating"]}
        placed.append(part)
    return {
        **node,
        "Actual Total Time": actual["seconds"],
        "Remaining Time": actual["seconds_left"],
        "Actual Visits": actual["visits"],
        **actual["spent"],
        "Alternatives": None,
        "Machine Memory Bytes": None,
        "Disk Free Bytes": None,
        PLANS: placed,
    }
