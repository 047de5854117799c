"""The interfaces that each backend of Keras implements in its file, on_<name>.py.

`make` in that file is the class that implements `KerasBackend`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.models.data import Dataset
from cerebro_plpy.threads import Tick

if TYPE_CHECKING:
    from cerebro_plpy.engine.activations.shards import DeviceRoom, Span
    from cerebro_plpy.engine.backends.stacks import Stack
    from cerebro_plpy.engine.checks.architecture import Shape


# A cancel must be noticed within a fraction of a second, so no call into a backend may last longer.
SECONDS_PER_CALL = 0.1


@dataclass(frozen=True)
class Feed:
    """A dataset with its targets in the form that the loss needs, and the weights of its rows.

    `key` stands for this form in the cache of the dataset (`Dataset.derived`).
    """

    dataset: Dataset
    targets: list[np.ndarray]
    # The weights of the rows: no array, one array, or one for each output.
    weights: list[np.ndarray]
    key: Any

    @property
    def inputs(self) -> list[np.ndarray]:
        return self.dataset.inputs


def unwrap_optimizer(optimizer: Any) -> Any:
    """Return the optimizer that changes the weights: a LossScaleOptimizer has another one inside."""
    return getattr(optimizer, "inner_optimizer", optimizer)


# Values of variables that no training changes, by the places of the variables.
KnownArrays = Mapping[int, np.ndarray]


class Loop(Protocol):
    """The interface of a loop that trains and tests a compiled model on rows."""

    def load(self, arrays: Iterable[np.ndarray], known: KnownArrays) -> None:
        """Load the values of all variables except those in `known`, which the loop already holds."""
        ...

    def save(self, known: KnownArrays) -> list[np.ndarray]:
        """Return the values of all variables; the values in `known` are returned as they are."""
        ...

    def give(self, optimizer: Any) -> None:
        """Use the numbers of this optimizer, such as `beta_1`, if the compiled code takes them."""
        ...

    def reset_metrics(self) -> None: ...

    def start_pass(self) -> None: ...

    def train(self, feed: Feed, order: np.ndarray, batch_size: int, fixed: bool, tick: Tick) -> None: ...

    def finish_pass(self) -> None: ...

    def test(self, feed: Feed, order: np.ndarray, batch_size: int, tick: Tick) -> None: ...

    def count_step_bytes(self, feed: Feed, batch_size: int) -> int | None:
        """Return the bytes that the compiled training step takes beside states and rows, if it says so."""
        ...

    def metrics(self) -> list[np.ndarray]: ...

    def set_metrics(self, arrays: list[np.ndarray]) -> None: ...

    def results(self) -> dict[str, Any]: ...


BoundForward = Callable[[list[np.ndarray]], list[Any]]
# Returns one number per row from the row's output and the numbers that come with it, by Keras' operations.
ScoreOf = Callable[[Any, Any], Any]
# Returns each row's score and its slopes along each input, from inputs and the numbers that come with rows.
Slope = Callable[[list[np.ndarray], np.ndarray], tuple[np.ndarray, list[np.ndarray]]]
# Returns the slopes of the mean score along each trainable variable, from variables (trainable ones first),
# inputs and the numbers that come with the rows.
Gradient = Callable[[list[Any], list[np.ndarray], np.ndarray], list[np.ndarray]]


@dataclass(frozen=True)
class Entering:
    """Tensors that enter a block of layers, their masks, and values of variables.

    The block uses `values` in place of reading the variables.
    """

    tensors: Sequence[Any]
    masks: Sequence[Any]
    values: Sequence[Any]


# Returns the tensors that leave a block of layers, and its further results: masks, and values of variables.
Again = Callable[[Entering], tuple[list[Any], list[Any]]]


class Forward(Protocol):
    """A model's forward pass: a function of its variables, trainable ones first, and of its inputs."""

    def __call__(self, variables: list[Any], batch: list[np.ndarray]) -> list[Any]: ...

    def bound(self, variables: list[Any]) -> BoundForward:
        """Return the forward pass for these variables, as a function of the inputs alone."""
        ...


class KerasBackend(Protocol):
    """The interface of a backend of Keras: TensorFlow, JAX or PyTorch."""

    # Whether another number of rows costs another compilation.
    fixed_rows = False
    # Why compiled programs are not kept beyond this process although they should be; None if they are.
    not_kept: str | None = None

    def set_up(self, wanted: runtime.Running) -> None:
        """Set the threads and the GPU that the backend uses, from the settings of this process."""
        ...

    def has_gpu(self) -> bool: ...

    def make_loop(self, model: Any, variables: list[Any], inputs: Sequence[str], whole: Any) -> Loop:
        """Return a loop that trains `model`, a part of `whole`, with the bits that training `whole` gives.

        `model` may also be all of `whole`. `inputs` names the numbers of the optimizer that are inputs of the
        compiled code (madlib/inputs.py).
        """
        ...

    def make_sharded_loop(
        self,
        model: Any,
        variables: list[Any],
        inputs: Sequence[str],
        spans: Sequence[Span],
        room: DeviceRoom,
    ) -> Loop:
        """Return a loop that has two of the shards `spans` on the device at a time, or more if they fit.

        A run on an engine without such a loop is refused before it begins.
        """
        raise NotImplementedError

    def on_host(self) -> AbstractContextManager[None]:
        """Return a context in which new variables and tensors lie in the memory of the host."""
        return nullcontext()

    def make_stack(self, model: Any, variables: list[Any], inputs: Sequence[str], loop: Loop) -> Stack | None:
        """Return a stack that runs a model in many states at once.

        `loop` is the loop that runs the same model in one state. Return None if the stack would give other
        bits than the loop.
        """
        return None

    def compute_again(self, compute: Again, given: Entering) -> tuple[list[Any], list[Any]]:
        """Return the results of `compute` for `given`; the backward pass calls `compute` once more.

        Nothing that `compute` makes on the way is kept for the backward pass. Gradients flow through the
        first list of its results to the tensors of `given`.
        """
        ...

    def to_tensor(self, array: np.ndarray) -> Any:
        """Return a copy of an array as a tensor on the device on which the backend computes."""
        ...

    def make_forward(self, model: Any, inputs: Sequence[Shape]) -> Forward: ...

    def make_slope(self, model: Any, inputs: Sequence[Shape], score: ScoreOf) -> Callable[[list[Any]], Slope]:
        """Return a function that takes a model's variables and returns a `Slope` for them.

        A `Slope` computes scores from the model's first output, and their slopes: derivatives by the inputs.
        """
        ...

    def make_gradient(self, model: Any, score: ScoreOf) -> Gradient:
        """Return a function that computes the gradient of the mean score with respect to model weights."""
        ...

    def to_numpy(self, tensor: Any) -> np.ndarray:
        """Return a copy of a tensor of the backend, or of an array, as a NumPy array."""
        return np.array(tensor)

    def seed(self, seed: int) -> None:
        """Seed the backend's own generator, if Keras draws from it."""

    def generator(self) -> Any:
        """Return the state of the backend's own generator."""
        return None

    def set_generator(self, state: Any) -> None:
        """Restore the state of the backend's own generator."""

    def own_variables(self) -> list[Any]:
        """Return the backend's own variables on which training depends, such as a generator's state."""
        return []


class PlainForward:
    """A forward pass for backends on which passing the variables at each call costs nothing."""

    def __init__(self, call: Callable[[list[Any], list[np.ndarray]], list[Any]]) -> None:
        self._call = call

    def __call__(self, variables: list[Any], batch: list[np.ndarray]) -> list[Any]:
        return self._call(variables, batch)

    def bound(self, variables: list[Any]) -> BoundForward:
        return partial(self._call, variables)


class VariableLoop:
    """A base class for loops that keep the values of variables in Keras' own variables."""

    def __init__(self, model: Any, variables: list[Any]) -> None:
        self._model = model
        self._variables = variables

    def load(self, arrays: Iterable[np.ndarray], known: KnownArrays) -> None:
        for place, (variable, array) in enumerate(zip(self._variables, arrays, strict=True)):
            if place not in known:
                variable.assign(array)

    def save(self, known: KnownArrays) -> list[np.ndarray]:
        return [
            known[place] if place in known else runtime.to_numpy(variable)
            for place, variable in enumerate(self._variables)
        ]

    def give(self, optimizer: Any) -> None:
        """Do nothing: the optimizer's numbers are constants of the compiled code."""

    def reset_metrics(self) -> None:
        self._model.reset_metrics()

    def start_pass(self) -> None:
        self.reset_metrics()

    def finish_pass(self) -> None:
        """Replace weights by their moving average if the optimizer keeps one, as at the end of Keras' fit."""
        self._model.optimizer.finalize_variable_values(self._model.trainable_weights)

    def count_step_bytes(self, feed: Feed, batch_size: int) -> int | None:
        return None

    def metrics(self) -> list[np.ndarray]:
        return [runtime.to_numpy(variable) for variable in self._model.metrics_variables]

    def set_metrics(self, arrays: list[np.ndarray]) -> None:
        _assign(self._model.metrics_variables, arrays)

    def results(self) -> dict[str, Any]:
        return self._model.get_metrics_result()


def _assign(variables: list[Any], arrays: list[np.ndarray]) -> None:
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


class Pace:
    """A cutter of work into pieces that take about `SECONDS_PER_CALL`; the cuts never change a result."""

    def __init__(self) -> None:
        self._units = 1

    def pieces(self, total: int, tick: Tick) -> Iterator[tuple[int, int]]:
        """Yield the first and the end of each range of work units, and call `tick` after each range."""
        first = 0
        while first < total:
            last = min(first + self._units, total)
            with self._timed(last - first):
                yield first, last
            tick()
            first = last

    def stretches(self, sizes: Sequence[int], tick: Tick) -> Iterator[tuple[int, int]]:
        """Yield the first and the end of each range of items, and call `tick` after each range.

        `sizes` has the number of work units of each item; an item is never split.
        """
        first = 0
        while first < len(sizes):
            last, units = first + 1, sizes[first]
            while last < len(sizes) and units + sizes[last] <= self._units:
                units += sizes[last]
                last += 1
            with self._timed(units):
                yield first, last
            tick()
            first = last

    @contextmanager
    def _timed(self, done: int) -> Iterator[None]:
        started = time.perf_counter()
        yield
        fitting = done * SECONDS_PER_CALL / max(time.perf_counter() - started, 1e-6)
        self._units = max(1, int(min(fitting, self._units * 8)))
