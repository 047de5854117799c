"""Evaluations: measures states on a segment's rows, and merges all segments' results into metrics."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cerebro_plpy.commands import Evaluate, Merge
from cerebro_plpy.engine import state as states
from cerebro_plpy.errors import DATA_CORRUPTED, CerebroError
from cerebro_plpy.logical.metrics import better
from cerebro_plpy.segment import rows, visits
from cerebro_plpy.segment.features import Needs
from cerebro_plpy.segment.supply import Supply
from cerebro_plpy.store.runs import measurements


def evaluate(supply: Supply, asked: Evaluate) -> Mapping[str, Any]:
    """Measure the states of configs after an epoch on the training and validation rows of a segment."""
    clock, epoch, segment = time.monotonic(), asked.epoch, asked.segment
    works = [visits.task(supply, asked.run_id, key) for key in asked.members or [asked.mst_key]]
    works = [work.at(work.config.epochs_before + epoch) for work in works]
    found = visits.states_after(supply, works, epoch * works[0].run.segments)
    # Read all rows before measuring: if a process on Greenplum lacks some, it begins the command again.
    subsets = [
        {
            dataset: _chosen(dataset, work, rows.partition(supply.source, work.run, table, segment), subset)
            for dataset, (table, subset) in rows.measured_on(work.run, work.config).items()
        }
        for work in works
    ]
    for work, state, partitions in zip(works, found, subsets, strict=True):
        needs = visits.find_needs(supply, work, asked.cut_configs)
        for dataset, partition in partitions.items():
            if work.config.group_id is not None and not partition.rows:
                continue
            _measure(
                supply,
                work=work,
                state=state,
                epoch=epoch,
                segment=segment,
                dataset=dataset,
                partition=partition,
                needs=needs,
            )
    return {"seconds": time.monotonic() - clock}


def _chosen(
    dataset: str, work: visits.Task, partition: rows.Partition, subset: rows.Subset
) -> rows.PartitionRows:
    """Return the rows to measure; for the dataset "training", only as many as one epoch trains on."""
    choose = rows.choose_training_rows if dataset == "training" else rows.choose_measured_rows
    return choose(work.run, partition, subset)


def _measure(
    supply: Supply,
    work: visits.Task,
    state: states.State,
    epoch: int,
    segment: int,
    dataset: str,
    partition: rows.PartitionRows,
    needs: Needs | None,
) -> None:
    clock, run = time.monotonic(), work.run
    variables = visits.measure(supply, work, state, partition, needs)
    data, seconds = _pack(variables), time.monotonic() - clock
    key = work.config.mst_key
    supply.leave_evaluation(
        measurements.EvaluationRow(
            run_id=run.run_id,
            mst_key=key,
            epoch=epoch,
            dataset=dataset,
            segment=segment,
            data=data,
            seconds=seconds,
        )
    )


def merge(supply: Supply, asked: Merge) -> Mapping[str, Any]:
    """Merge the evaluations of all segments, store the metrics, and return them by dataset.

    If the command has several members, return such a mapping for each `mst_key`.
    """
    if asked.members:
        return {str(key): _merge_config(supply, asked, key) for key in asked.members}
    return _merge_config(supply, asked, asked.mst_key)


def _merge_config(supply: Supply, asked: Merge, key: int) -> Mapping[str, Any]:
    work = visits.task(supply, asked.run_id, key)
    found = {
        dataset: supply.evaluations(asked.run_id, key, asked.epoch, dataset)
        for dataset in rows.measured_on(work.run, work.config)
    }
    if work.config.group_id is None:
        _check_whole(work, asked.epoch, found)
    # A group may have no validation rows.
    return {
        dataset: _merge(supply, work, asked.epoch, dataset, parts)
        for dataset, parts in found.items()
        if parts
    }


def _check_whole(work: visits.Task, epoch: int, found: Mapping[str, Sequence[bytes]]) -> None:
    """Raise an error if a segment's evaluation is missing.

    Commits do not wait for the disk, so a server that crashes may lose one.
    """
    run = work.run
    lost = [dataset for dataset, parts in found.items() if len(parts) < run.segments]
    if lost:
        raise CerebroError(
            f"config {work.config.mst_key}'s evaluation after epoch {epoch} on {lost[0]} rows is not whole",
            detail="A server that stored a part of it has lost it, as after a crash.",
            hint="Make the call again."
            if run.kind == "evaluation"
            else f"Call cerebro.resume({run.run_id}): it evaluates the config again.",
            sqlstate=DATA_CORRUPTED,
        )


def _merge(
    supply: Supply, work: visits.Task, epoch: int, dataset: str, parts: Sequence[bytes]
) -> Mapping[str, float]:
    run_id, mst_key = work.run.run_id, work.config.mst_key
    with visits.own_faults("was evaluated"):
        values = work.model.merge([_unpack(part) for part in parts])
    measured = [
        measurements.Measured(
            run_id=run_id,
            mst_key=mst_key,
            epoch=epoch,
            dataset=dataset,
            position=position,
            metric=name,
            value=value,
            higher_is_better=better(name, work.compile) == "max",
        )
        for position, (name, value) in enumerate(values.items())
    ]
    supply.leave_metrics(measured)
    return values


def _pack(variables: list[np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    for variable in variables:
        np.save(buffer, variable, allow_pickle=False)
    return buffer.getvalue()


def _unpack(data: bytes) -> list[np.ndarray]:
    buffer, found = io.BytesIO(data), []
    while buffer.tell() < len(data):
        found.append(np.load(buffer, allow_pickle=False))
    return found
