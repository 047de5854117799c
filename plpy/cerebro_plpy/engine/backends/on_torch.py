"""Trains on PyTorch, batch after batch, as Keras itself does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.backends.interfaces import (
    Again,
    Entering,
    Feed,
    Forward,
    Gradient,
    KerasBackend,
    PlainForward,
    ScoreOf,
    Slope,
    Tick,
    VariableLoop,
    unwrap_optimizer,
)
from cerebro_plpy.engine.backends.runtime import Running
from cerebro_plpy.engine.checks.architecture import Shape
from cerebro_plpy.engine.models import forms


class Torch(KerasBackend):
    def set_up(self, wanted: Running) -> None:
        torch.set_num_threads(wanted.threads)
        if wanted.gpu is not None and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(wanted.gpu.fraction)

    def has_gpu(self) -> bool:
        return torch.cuda.is_available()

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def generator(self) -> Any:
        return torch.get_rng_state()

    def set_generator(self, state: Any) -> None:
        torch.set_rng_state(state)

    def own_variables(self) -> list[Any]:
        return [Generator()]

    def to_numpy(self, tensor: Any) -> np.ndarray:
        return np.array(tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor)

    def make_loop(self, model: Any, variables: list[Any], inputs: Sequence[str], whole: Any) -> TorchLoop:
        return TorchLoop(model, variables)

    def compute_again(self, compute: Again, given: Entering) -> tuple[list[Any], list[Any]]:
        beside: list[list[Any]] = []

        def run(*tensors: Any) -> list[Any]:
            left, others = compute(replace(given, tensors=tensors))
            beside.append(others)
            return left

        left = torch.utils.checkpoint.checkpoint(run, *given.tensors, use_reentrant=False)
        # The results of the first call; the second call comes later.
        return list(left), beside[0]

    def to_tensor(self, array: np.ndarray) -> Any:
        return _tensor(np.array(array))

    def make_forward(self, model: Any, inputs: Sequence[Shape]) -> Forward:
        return PlainForward(partial(_forward, model))

    def make_slope(self, model: Any, inputs: Sequence[Shape], score: ScoreOf) -> Callable[[list[Any]], Slope]:
        return partial(partial, _slope, model, score)

    def make_gradient(self, model: Any, score: ScoreOf) -> Gradient:
        return partial(_gradient, model, score)


class Generator:
    """PyTorch's own generator as a variable; Keras' Dropout draws from it if it has no seed."""

    path = "torch/generator"

    @property
    def value(self) -> Any:
        return torch.cuda.get_rng_state() if torch.cuda.is_available() else torch.get_rng_state()

    def assign(self, state: np.ndarray) -> None:
        put = torch.cuda.set_rng_state if torch.cuda.is_available() else torch.set_rng_state
        put(torch.from_numpy(np.array(state)))


class TorchLoop(VariableLoop):
    """A loop that copies the rows to the device once and picks batches there."""

    def start_pass(self) -> None:
        super().start_pass()
        optimizer = unwrap_optimizer(self._model.optimizer)
        # Keras' first fit of a model reads a batch beforehand, to build its metrics.
        self._open_loaders(2 if int(runtime.to_numpy(optimizer.iterations)) == 0 else 1)

    def finish_pass(self) -> None:
        self._open_loaders(1)
        super().finish_pass()

    def _open_loaders(self, count: int) -> None:
        """Draw `count` random numbers, so that all later ones are the same as in Keras' fit.

        There, each of `count` DataLoaders draws one when it begins.
        """
        for _ in range(count):
            torch.empty((), dtype=torch.int64).random_()

    def train(self, feed: Feed, order: np.ndarray, batch_size: int, fixed: bool, tick: Tick) -> None:
        self._model.train()
        try:
            self._run(self._model.train_step, feed, order, batch_size, tick)
        finally:
            self._model.eval()

    def test(self, feed: Feed, order: np.ndarray, batch_size: int, tick: Tick) -> None:
        with torch.no_grad():
            self._run(self._model.test_step, feed, order, batch_size, tick)

    def _run(
        self, step: Callable[[Any], Any], feed: Feed, order: np.ndarray, batch_size: int, tick: Tick
    ) -> None:
        inputs = feed.dataset.derived("torch", lambda: list(map(_tensor, feed.inputs)))
        targets, weights = feed.dataset.derived(("torch", feed.key), partial(_labels, feed))
        rows = _tensor(np.asarray(order, np.int64))
        for first in range(0, len(order), batch_size):
            picked = rows[first : first + batch_size]
            x = forms.pack(self._model, [tensor[picked] for tensor in inputs])
            y = forms.one_or_all([tensor[picked] for tensor in targets])
            step((x, y, *forms.if_any([tensor[picked] for tensor in weights])))
            tick()


def _tensor(array: np.ndarray) -> Any:
    return runtime.keras().ops.convert_to_tensor(array)


def _labels(feed: Feed) -> tuple[list[Any], list[Any]]:
    return [_tensor(array) for array in feed.targets], [_tensor(array) for array in feed.weights]


def _forward(model: Any, variables: list[Any], batch: list[np.ndarray]) -> list[np.ndarray]:
    with torch.no_grad():
        found = _outputs(model, variables, [_tensor(np.array(array)) for array in batch])
    return [runtime.to_numpy(output) for output in found]


def _outputs(model: Any, variables: list[Any], batch: list[Any]) -> list[Any]:
    split = len(model.trainable_variables)
    found, _ = model.stateless_call(
        variables[:split], variables[split:], forms.pack(model, batch), training=False
    )
    return runtime.keras().tree.flatten(found)


def _slope(
    model: Any, score: ScoreOf, variables: list[Any], batch: list[np.ndarray], given: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    tensors = [_tensor(np.array(array)).requires_grad_() for array in batch]
    scores = score(_outputs(model, variables, tensors)[0], _tensor(given))
    found = torch.autograd.grad(scores.sum(), tensors, materialize_grads=True, allow_unused=True)
    return runtime.to_numpy(scores), list(map(runtime.to_numpy, found))


def _gradient(
    model: Any, score: ScoreOf, variables: list[Any], batch: list[np.ndarray], given: np.ndarray
) -> list[np.ndarray]:
    split = len(model.trainable_variables)
    trainable = [tensor.detach().clone().requires_grad_() for tensor in variables[:split]]
    inputs = [_tensor(np.array(array)) for array in batch]
    found = _outputs(model, [*trainable, *variables[split:]], inputs)[0]
    mean = score(found, _tensor(given)).mean()
    slopes = torch.autograd.grad(mean, trainable, materialize_grads=True, allow_unused=True)
    return list(map(runtime.to_numpy, slopes))


make = Torch
