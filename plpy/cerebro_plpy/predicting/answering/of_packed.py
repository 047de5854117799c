"""Predicts for packed rows, in the caller's session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.engine.models.inference import inference
from cerebro_plpy.engine.plain.forward import plain_net
from cerebro_plpy.engine.plain.layers import NotHere
from cerebro_plpy.predicting import models

_ROWS = 1024


def answers(db: Database, model: models.Model, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return a net's outputs for these rows, as float32; NumPy computes small nets."""
    shapes = tuple(tuple(rows.shape[1:]) for rows in inputs)
    weights, threads = model.weights(), models.open_threads(db)
    plain = None if models.runs_engine() else plain_net(model.model_arch, weights, shapes)
    if plain is not None and plain.is_light:
        try:
            return _in_batches(plain, inputs, threads.tick)
        except NotHere:
            pass
    models.start_engine(db, model.backend, False)
    models.take_functions(db, model)
    forward = inference(models.described(model, shapes))
    return forward.predict_many(forward.load(weights), list(inputs), forward.rows, threads)


def _in_batches(
    net: Callable[[list[np.ndarray]], list[np.ndarray]],
    inputs: Sequence[np.ndarray],
    tick: Callable[[], None],
) -> list[np.ndarray]:
    found = []
    for first in range(0, len(inputs[0]), _ROWS):
        found.append(net([rows[first : first + _ROWS] for rows in inputs]))
        tick()
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]
