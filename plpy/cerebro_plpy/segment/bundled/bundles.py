"""A visit of a bundle: trains several configs of one program on a segment, in one transaction.

The members are one config on many groups, which the visit also measures, or several configs that hop. If a
bundle of groups has no epochs to train, it is only measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.commands import VisitBundle
from cerebro_plpy.engine import state as states
from cerebro_plpy.errors import CONFIG_FAILED, CerebroError
from cerebro_plpy.logical.metrics import better
from cerebro_plpy.planner import routes
from cerebro_plpy.planner.estimating.work import EVALUATION_BATCH
from cerebro_plpy.segment import rows, visits
from cerebro_plpy.segment.bundled import fusing
from cerebro_plpy.segment.bundled.members import Member
from cerebro_plpy.segment.kept import KeptFrozen
from cerebro_plpy.segment.supply import Supply
from cerebro_plpy.store.runs import measurements, runs, starting_weights


def visit(supply: Supply, asked: VisitBundle) -> Mapping[str, Any]:
    """Train and measure a bundle; store states, log rows and metrics in the transaction of the command."""
    started_at, clock, computed = time.time(), time.monotonic(), time.process_time()
    run_id = asked.run_id
    work = visits.task(supply, run_id, asked.mst_key)
    # Configs that hop are measured apart, when all segments have trained them.
    tables = rows.named_tables(work.run) if asked.stop is None else {"training": work.run.source_table}
    partitions = {
        dataset: rows.partition(supply.source, work.run, table, asked.segment)
        for dataset, table in tables.items()
    }
    members = (_groups if asked.stop is None else _configs)(supply, work, asked, partitions)
    read = time.monotonic()
    declined = _train(supply, work, asked, partitions, members)
    trained = time.monotonic()
    whole = [member for member in members if member.failure is None]
    step = _step(work, asked)
    share = 1 / len(members)
    done = [
        runs.VisitRow(
            run_id=run_id,
            mst_key=member.mst_key,
            step=step,
            epoch=asked.until,
            segment=asked.segment,
            rows=member.rows.rows,
            loss=member.logs.get("loss"),
            logs=visits.as_json(member.logs),
            state_bytes=0,
            read_seconds=(read - clock) * share,
            train_seconds=(trained - read) * share,
            write_seconds=0.0,
            # As if they had been trained one after the other.
            started_at=started_at + number * (trained - clock) * share,
            pid=os.getpid(),
            cpu_seconds=(time.process_time() - computed) * share,
            memory_bytes=visits.memory_bytes(),
        )
        for number, member in enumerate(whole)
    ]
    size = 0
    if done and asked.until >= asked.epoch:
        size = supply.leave_bundle(done, [(m.mst_key, m.state) for m in whole])
    if asked.stop is not None:
        visits.remember(run_id, step, {member.mst_key: member.state for member in whole})
    elif done:
        supply.leave_metrics(_metrics(work, whole))
    return {
        "seconds": time.monotonic() - clock,
        "declined": declined,
        "state_bytes": size,
        "losses": [member.logs.get("loss") if member.failure is None else None for member in members],
        "failures": {str(m.mst_key): m.failure for m in members if m.failure is not None},
        "measured": [[m.mst_key, epoch, values] for m in whole for epoch, values in _deciding(m)],
    }


def _step(work: visits.Task, asked: VisitBundle) -> int:
    """Return the step of all members after the visit."""
    segments = work.run.segments
    if asked.stop is None:
        return asked.until * segments
    return routes.step_of(asked.epoch, asked.stop, segments)


def _deciding(member: Member) -> Iterator[tuple[int, Mapping[str, float]]]:
    """Return each measured epoch with the metrics by which a run compares its configs.

    They are measured on validation rows, or on training rows if there are no validation rows.
    """
    on = "validation" if "validation" in member.measured_on else "training"
    return ((epoch, values) for (epoch, dataset), values in member.measured.items() if dataset == on)


def _groups(
    supply: Supply, work: visits.Task, asked: VisitBundle, partitions: Mapping[str, rows.Partition]
) -> list[Member]:
    configs = supply.bundle(asked.run_id, asked.members)
    step = (asked.epoch - 1) * work.run.segments
    begin = [config for config in configs if step == (config.source_step or 0)]
    going = [config.mst_key for config in configs if step != (config.source_step or 0)]
    before = _first_states(supply, work, begin) if begin else {}
    if going:
        before |= dict(zip(going, supply.states(asked.run_id, going, step), strict=True))
    return [_of_group(work, config, before[config.mst_key], partitions, asked) for config in configs]


def _first_states(
    supply: Supply, work: visits.Task, configs: Sequence[runs.ConfigRow]
) -> dict[int, states.State]:
    """Return the first state of each group, by `mst_key`.

    All groups begin with one state, made from the config's seed, unless a group has starting weights, is a
    clone, or has a warm start.
    """
    run_id = work.run.run_id
    fresh = visits.fresh_state(supply, work, starting_weights.EVERY_CONFIG)
    memory.get_instance(KeptFrozen).share(fresh)
    own = supply.own_weights(run_id, [config.mst_key for config in configs])
    with visits.own_faults("was initialized"):
        found = {
            key: work.model.started(fresh, own[key]) if key in own else fresh
            for key in (config.mst_key for config in configs)
        }
    earlier: dict[tuple[int, int], dict[int, int]] = {}
    for config in configs:
        if config.source_key is not None:
            own_task = visits.task(supply, run_id, config.mst_key)
            found[config.mst_key] = visits.state_after(supply, own_task, config.source_step or 0)
        elif config.warm_run_id is not None and config.warm_step is not None:
            key = config.mst_key if config.warm_key is None else config.warm_key
            earlier.setdefault((config.warm_run_id, config.warm_step), {})[config.mst_key] = key
    for (warm_run, step), keys in earlier.items():
        for key, old in zip(keys, supply.states(warm_run, list(keys.values()), step), strict=True):
            found[key] = visits.warmed(found[key], old)
    return found


def _of_group(
    work: visits.Task,
    config: runs.ConfigRow,
    state: states.State,
    partitions: Mapping[str, rows.Partition],
    asked: VisitBundle,
) -> Member:
    own = {dataset: partition.whole_group(config.group_id or 0) for dataset, partition in partitions.items()}
    # A group without validation rows is measured only on its training rows.
    measured_on = {dataset: some for dataset, some in own.items() if some.rows} if asked.measured else {}
    return Member(config.mst_key, replace(work, config=config), own["training"], measured_on, state)


def _configs(
    supply: Supply, first: visits.Task, asked: VisitBundle, partitions: Mapping[str, rows.Partition]
) -> list[Member]:
    works = [visits.task(supply, asked.run_id, key) for key in asked.members]
    before = visits.states_after(supply, works, _step(first, asked) - 1)
    # Configs with the same fold train on the same rows, in one order.
    shared = {
        fold: rows.choose_training_rows(first.run, partitions["training"], rows.Subset(fold))
        for fold in {work.config.fold for work in works}
    }
    return [
        Member(work.config.mst_key, work, shared[work.config.fold], {}, state)
        for work, state in zip(works, before, strict=True)
    ]


def _train(
    supply: Supply,
    work: visits.Task,
    asked: VisitBundle,
    partitions: Mapping[str, rows.Partition],
    members: Sequence[Member],
) -> str | None:
    """Train and measure all members, as one program or one after the other, as the command's form says.

    If one program would change the bits of some members, train these one after the other and return why.
    """
    datasets = {name: one.cached for name, one in partitions.items() if one.cached is not None}
    # With balanced classes, each group has class weights of its own.
    balanced = any(member.work.config.class_counts is not None for member in members)
    fused = [] if balanced else fusing.fused(work, asked.form, datasets, members)
    declined: str | None = None
    if fused and asked.until < asked.epoch:
        fusing.measure(supply, work, asked, datasets, fused)
    elif fused:
        trained = fusing.train(supply, work, asked, datasets, fused)
        declined = fusing.DECLINED[asked.form] if len(trained) < len(fused) else None
        fused = trained
    together = {member.mst_key for member in fused}
    members = [member for member in members if member.mst_key not in together]
    for member in members:
        for epoch in _epochs(asked):
            try:
                if epoch >= asked.epoch:
                    _train_alone(supply, asked, member, epoch)
                if epoch in asked.measured:
                    for dataset, some in member.measured_on.items():
                        member.measured[epoch, dataset] = _measure(supply, work, member.state, some)
            except CerebroError as error:
                if error.sqlstate != CONFIG_FAILED:
                    raise
                member.failure = error.message
                break
    return declined


def _train_alone(supply: Supply, asked: VisitBundle, member: Member, epoch: int) -> None:
    whole_epoch = fusing.whole_epoch(member, epoch)
    member.state, member.logs = visits.train(supply, member.work, member.state, member.rows, whole_epoch)
    if member.rows.rows:
        visits.check_finite(member.logs, asked.segment, epoch)


def _epochs(asked: VisitBundle) -> range:
    """Return the epochs to train and measure; if there are none to train, only the epoch to measure."""
    return range(asked.epoch if asked.until >= asked.epoch else asked.until, asked.until + 1)


def _measure(
    supply: Supply, work: visits.Task, state: states.State, own: rows.PartitionRows
) -> Mapping[str, float]:
    with visits.own_faults("was evaluated"):
        variables = work.model.evaluate(state, own.in_order(), EVALUATION_BATCH, supply.ticker())
        return work.model.merge([variables])


def _metrics(work: visits.Task, members: Sequence[Member]) -> list[measurements.Measured]:
    return [
        measurements.Measured(
            run_id=work.run.run_id,
            mst_key=member.mst_key,
            epoch=epoch,
            dataset=dataset,
            position=position,
            metric=name,
            value=value,
            higher_is_better=better(name, work.compile) == "max",
        )
        for member in members
        for (epoch, dataset), values in member.measured.items()
        for position, (name, value) in enumerate(values.items())
    ]
