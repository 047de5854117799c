"""The forward pass: one compiled function per architecture, which takes the weights as arguments.

Models that share an architecture share the function, whatever their compile parameters, and no optimizer is
made for any of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture, lora
from cerebro_plpy.engine.checks.architecture import DescribedModel
from cerebro_plpy.engine.plain.forward import plain_net
from cerebro_plpy.engine.plain.layers import NotHere
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.threads import Threads, Tick

Predict = Callable[[list[np.ndarray]], list[np.ndarray]]

# How much work one call into a backend may be, so that a cancel is noticed soon.
FLOPS_PER_CALL = 5_000_000_000
# The outputs of usual layers for so many rows stay in a processor's caches.
MOST_ROWS = 256
# How far the answers of NumPy may be from the answers of the engine.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Loaded:
    """The variables of one model as tensors of the engine."""

    tensors: list[Any]
    nbytes: int


class Inference:
    """The forward pass of an architecture."""

    def __init__(self, described: DescribedModel) -> None:
        self._backend = runtime.get_keras_backend()
        # Adapters are added to their kernels, once and not for each row.
        self._merges = lora.can_merge(described.adapters)
        text = lora.without(described.json) if self._merges else described.json
        self.model = architecture.build(text)
        self.variables = [*self.model.trainable_variables, *self.model.non_trainable_variables]
        self._call = self._backend.make_forward(self.model, described.inputs)
        # Where each number of rows has a program of its own, threads would compile the same one side by side,
        # and there calls wait for each other anyway.
        self._turns = Lock() if self._backend.fixed_rows else nullcontext()
        self._shapes = described.weight_shapes
        self._described = described
        self.rows = max(1, min(MOST_ROWS, FLOPS_PER_CALL // max(1, described.flops_per_row)))

    def load(self, weights: bytes) -> Loaded:
        """Return a model's variables as the engine needs them, from weights in MADlib's form."""
        arrays = zip(self.model.weights, self._split(weights), strict=True)
        given = {id(variable): array for variable, array in arrays}
        found = [self._array(v, given).astype(v.dtype, copy=False) for v in self.variables]
        return Loaded([self._backend.to_tensor(array) for array in found], sum(a.nbytes for a in found))

    def _split(self, weights: bytes) -> list[np.ndarray]:
        found, shapes = self._described.adapters, self._shapes
        if not found or len(weights) != 4 * lora.base_size(shapes, found):
            arrays = split(weights, shapes)
            return lora.merged(arrays, found) if self._merges else arrays
        more = lora.added(found)
        base = split(weights, tuple(shape for place, shape in enumerate(shapes) if place not in more))
        if self._merges:
            return base
        # Adapters that have learned nothing yet.
        rest = iter(base)
        return [
            np.zeros(shape, np.float32) if place in more else next(rest) for place, shape in enumerate(shapes)
        ]

    @staticmethod
    def _array(variable: Any, given: dict[int, np.ndarray]) -> np.ndarray:
        """Return a variable's value in `given`; for a variable that is no weight, its own value."""
        return given[id(variable)] if id(variable) in given else runtime.to_numpy(variable)

    def predict(self, loaded: Loaded, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """Return the outputs, in float32, for a few rows in one call of the engine."""
        return [np.asarray(output, np.float32) for output in self._call(loaded.tensors, inputs)]

    def bound(self, loaded: Loaded, weights: bytes | None = None) -> Predict:
        """Return a function that predicts with one model.

        A call of it is faster than `predict`, but making it takes time, so it pays for many calls.

        If `weights` is given, NumPy answers in place of the engine: for a single row, NumPy is faster. It
        does so only for a net that is small, and whose layers it can compute.
        """
        call = self._call.bound(loaded.tensors)

        def by_engine(inputs: list[np.ndarray]) -> list[np.ndarray]:
            return [np.asarray(output, np.float32) for output in call(inputs)]

        own = None if weights is None else plain_net(self._described.json, weights)
        if own is None or not own.is_light or not self._agrees(by_engine, own):
            return by_engine

        def answer(inputs: list[np.ndarray]) -> list[np.ndarray]:
            try:
                return own(inputs)
            except NotHere:
                return by_engine(inputs)

        return answer

    def _agrees(self, by_engine: Predict, own: Predict) -> bool:
        """Return whether NumPy and the engine give the same answers, for rows of ones and of halves."""
        for value in (1.0, 0.5):
            rows = [
                np.full((1, *(size or 1 for size in shape)), value, np.float32)
                for shape in self._described.inputs
            ]
            try:
                found = own(rows)
            except (NotHere, ValueError, IndexError):
                return False
            for one, other in zip(found, by_engine(rows), strict=True):
                if one.shape != other.shape or not np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE):
                    return False
        return True

    def predict_many(
        self, loaded: Loaded, inputs: list[np.ndarray], batch_rows: int, threads: Threads
    ) -> list[np.ndarray]:
        """Return the outputs for any number of rows, computed in threads that look for cancels."""
        starts = range(0, len(inputs[0]), batch_rows)
        found = threads.run([partial(self._predict_batch, loaded, inputs, at, batch_rows) for at in starts])
        return found[0] if len(found) == 1 else [np.concatenate(parts) for parts in zip(*found, strict=True)]

    def _predict_batch(
        self, loaded: Loaded, inputs: list[np.ndarray], first: int, batch_rows: int, tick: Tick
    ) -> list[np.ndarray]:
        batch = [array[first : first + batch_rows] for array in inputs]
        rows = len(batch[0])
        if self._backend.fixed_rows:
            batch = [pad(array, batch_rows) for array in batch]
        with self._turns:
            found = [output[:rows] for output in self.predict(loaded, batch)]
        tick()
        return found


@functools.lru_cache(maxsize=16)
def inference(described: DescribedModel) -> Inference:
    """Return this process's forward pass for an architecture, compiling it at the first call."""
    return Inference(described)


def split(weights: bytes, shapes: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    """Return arrays of the given shapes, cut from weights in MADlib's form."""
    sizes = [math.prod(shape) for shape in shapes]
    if len(weights) != 4 * sum(sizes):
        raise CerebroError(
            f"model_weights has {len(weights)} bytes, the architecture {sum(sizes)} weights of 4 bytes each",
            hint="Weights are the flattened float32 arrays of model.get_weights(), concatenated.",
        )
    flat = np.frombuffer(weights, "<f4")
    ends = np.cumsum(sizes)
    return [
        flat[end - size : end].reshape(shape) for end, size, shape in zip(ends, sizes, shapes, strict=True)
    ]


def pad(array: np.ndarray, rows: int) -> np.ndarray:
    """Return a batch filled up to `rows` with its last row, so that it needs no program of its own."""
    missing = rows - len(array)
    return array if missing == 0 else np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
