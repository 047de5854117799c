"""Measures what mini-batches of a net take, on invented rows; a plan uses this before any run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cerebro_plpy.commands import Probe, ProbedConfig
from cerebro_plpy.engine.checks import custom
from cerebro_plpy.engine.models import model as engine
from cerebro_plpy.engine.models.data import ONE_HOT, Block, Dataset, Target
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.params import parse_compile
from cerebro_plpy.planner.estimating.work import EVALUATION_BATCH
from cerebro_plpy.segment import visits

# Enough for a stable average, but few enough that a caller can wait.
BATCHES = 8
SEED = 1
# The most bytes of invented rows, whatever the batch size.
MOST_BYTES = 256 * 2**20


def probe(asked: Probe, tick: Callable[[], None]) -> Mapping[str, Any]:
    """Return, by `mst_key`, the seconds to train a mini-batch, to evaluate one, and to compile the net.

    On JAX, also return the bytes that a training step takes, as its compiler says.
    """
    with registered.scope(custom.take(asked.functions)):
        return {str(config.mst_key): _probe(asked, config, tick) for config in asked.configs}


def _probe(asked: Probe, config: ProbedConfig, tick: Callable[[], None]) -> Mapping[str, float | None]:
    clock = time.monotonic()
    params = parse_compile(config.compile_params)
    model = engine.compiled(
        asked.architectures[str(config.model_id)],
        params,
        engine.again_of(asked.recompute),
        visits.room_on_device(asked.device_memory_mb, config.batch_size),
    )
    state = model.initial_state(params, SEED, None)
    rows = _invented(asked, config.batch_size * BATCHES)
    state, _ = model.train(state, _pass(rows), config.batch_size, None, tick)
    began = time.monotonic()
    model.train(state, _pass(rows), config.batch_size, None, tick)
    trained = time.monotonic()
    model.evaluate(state, _blocks(rows), EVALUATION_BATCH, tick)
    measured = time.monotonic()
    model.evaluate(state, _blocks(rows), EVALUATION_BATCH, tick)
    again = time.monotonic() - measured
    each = (trained - began) / -(-rows.rows // config.batch_size)
    return {
        "batch": each,
        "evaluation": again / -(-rows.rows // EVALUATION_BATCH),
        "step_bytes": model.count_step_bytes(rows, config.batch_size),
        "compile": max(0.0, began - clock - (trained - began)) + max(0.0, measured - trained - again),
    }


def _invented(asked: Probe, wanted: int) -> Dataset:
    random = np.random.default_rng(SEED)
    width = 4 * sum(int(np.prod(shape)) for shape in asked.input_shapes)
    rows = max(1, min(wanted, MOST_BYTES // max(1, width)))
    inputs = [random.random((rows, *shape), np.float32) for shape in asked.input_shapes]
    kinds = zip(asked.target_shapes, asked.target_kinds, strict=True)
    return Dataset(inputs, [_target(random, rows, shape, kind) for shape, kind in kinds])


def _target(random: np.random.Generator, rows: int, shape: Sequence[int], kind: str) -> Target:
    if kind != ONE_HOT:
        return Target(random.random((rows, *shape), np.float32), kind)
    classes = random.integers(0, shape[-1], (rows, *shape[:-1]))
    return Target(np.eye(shape[-1], dtype=np.int16)[classes], kind)


def _pass(rows: Dataset) -> Iterator[Iterator[Block]]:
    yield _blocks(rows)


def _blocks(rows: Dataset) -> Iterator[Block]:
    yield Block(rows, np.arange(rows.rows))
