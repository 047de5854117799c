"""Evaluation: each segment measures a state on its own rows; the metrics' variables are summed afterwards."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.engine import state as states
from cerebro_plpy.logical.metrics import better
from cerebro_plpy.segment import cancel, rows, visits
from cerebro_plpy.store import measurements, runs

# Metrics do not depend on the batches; larger ones than most configs train with are faster.
BATCH_SIZE = 256


def evaluate(db: Database, run_id: int, mst_key: int, epoch: int, segment: int) -> Mapping[str, Any]:
    """Measure a config's state after an epoch on one segment's rows, training and validation both."""
    clock = time.monotonic()
    work = visits.task(db, run_id, mst_key)
    state = visits.state_after(db, work, epoch * work.run.segments)
    for dataset, table in datasets(work.run).items():
        _measure(db, work, state, epoch, segment, dataset, table)
    return {"seconds": time.monotonic() - clock}


def datasets(run: runs.RunRow) -> dict[str, str]:
    tables = {"training": run.source_table, "validation": run.validation_table}
    return {dataset: table for dataset, table in tables.items() if table is not None}


def _measure(
    db: Database, work: visits.Task, state: states.State, epoch: int, segment: int, dataset: str, table: str
) -> None:
    clock = time.monotonic()
    partition = rows.partition(db, work.run, table, segment)
    variables = work.model.evaluate(state, partition.in_order(), BATCH_SIZE, cancel.ticker(db))
    data, seconds = _pack(variables), time.monotonic() - clock
    run_id, mst_key = work.run.run_id, work.config.mst_key
    db.as_owner(
        lambda: measurements.write_evaluation(db, run_id, mst_key, epoch, dataset, segment, data, seconds)
    )


def merge(db: Database, run_id: int, mst_key: int, epoch: int) -> Mapping[str, Any]:
    """Sum what the segments measured and store the metrics."""
    work = visits.task(db, run_id, mst_key)
    return {dataset: _merge(db, work, epoch, dataset) for dataset in datasets(work.run)}


def _merge(db: Database, work: visits.Task, epoch: int, dataset: str) -> Mapping[str, float]:
    run_id, mst_key = work.run.run_id, work.config.mst_key
    parts = db.as_owner(lambda: measurements.read_evaluations(db, run_id, mst_key, epoch, dataset))
    values = work.model.merge([_unpack(part) for part in parts])
    measured = [measurements.Measured(n, v, better(n, work.compile) == "max") for n, v in values.items()]
    db.as_owner(lambda: measurements.write_metrics(db, run_id, mst_key, epoch, dataset, measured))
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
