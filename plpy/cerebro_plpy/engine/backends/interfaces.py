"""The interfaces of a backend of Keras. Each is one file, on_<name>.py; its `make` gives a `KerasBackend`."""

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
    """A dataset with its targets in the form the loss wants; the key names that form in its cache."""

    dataset: Dataset
    targets: list[np.ndarray]
    # What each row counts: nothing, one array, or one for each output.
    weights: list[np.ndarray]
    key: Any

    @property
    def inputs(self) -> list[np.ndarray]:
        return self.dataset.inputs


# Values of variables that no training changes, by the places of the variables.
KnownArrays = Mapping[int, np.ndarray]


class Loop(Protocol):
    """One backend's way to run a compiled model over rows."""

    def load(self, arrays: Iterable[np.ndarray], known: KnownArrays) -> None:
        """Load the values of all variables; the loop has those that are known already."""
        ...

    def save(self, known: KnownArrays) -> list[np.ndarray]:
        """Return the values of all variables; those that are known are returned as they are."""
        ...

    def give(self, optimizer: Any) -> None:
        """Train with the numbers of this optimizer, if the code takes them as inputs."""
        ...

    def reset_metrics(self) -> None: ...

    def start_pass(self) -> None: ...

    def train(self, feed: Feed, order: np.ndarray, batch_size: int, fixed: bool, tick: Tick) -> None: ...

    def finish_pass(self) -> None: ...

    def test(self, feed: Feed, order: np.ndarray, batch_size: int, tick: Tick) -> None: ...

    def metrics(self) -> list[np.ndarray]: ...

    def set_metrics(self, arrays: list[np.ndarray]) -> None: ...

    def results(self) -> dict[str, Any]: ...


BoundForward = Callable[[list[np.ndarray]], list[Any]]
# Makes one number of each row's output and of the numbers that come with the row, by Keras' operations.
ScoreOf = Callable[[Any, Any], Any]
# Returns each row's score and its slopes along each input, from inputs and what comes with the rows.
Slope = Callable[[list[np.ndarray], np.ndarray], tuple[np.ndarray, list[np.ndarray]]]
# Returns the slopes of the mean score along each trainable variable, from variables (trainable ones first),
# inputs and what comes with the rows.
Gradient = Callable[[list[Any], list[np.ndarray], np.ndarray], list[np.ndarray]]


@dataclass(frozen=True)
class Entering:
    """Tensors that enter a block of layers, their masks, and values of variables that it does not read for
    itself."""

    tensors: Sequence[Any]
    masks: Sequence[Any]
    values: Sequence[Any]


# Returns what leaves a block of layers, and what else it makes: masks, and new values of variables.
Again = Callable[[Entering], tuple[list[Any], list[Any]]]


class Forward(Protocol):
    """A model's forward pass: a function of its variables, trainable ones first, and of its inputs."""

    def __call__(self, variables: list[Any], batch: list[np.ndarray]) -> list[Any]: ...

    def bound(self, variables: list[Any]) -> BoundForward:
        """Return a function of the inputs alone."""
        ...


class KerasBackend(Protocol):
    """One of Keras' backends."""

    # Whether another number of rows costs another compilation.
    fixed_rows = False
    # The reason why compiled programs end with this process although they were to be kept.
    not_kept: str | None = None

    def set_up(self, wanted: runtime.Running) -> None:
        """Give the backend its threads and its GPU."""
        ...

    def has_gpu(self) -> bool: ...

    def make_loop(self, model: Any, variables: list[Any], inputs: Sequence[str], whole: Any) -> Loop:
        """Return a loop whose code takes these numbers of the optimizer as inputs (madlib/inputs.py), with
        the bits of the whole model, of which this may be a part."""
        ...

    def make_sharded_loop(
        self,
        model: Any,
        variables: list[Any],
        inputs: Sequence[str],
        spans: Sequence[Span],
        room: DeviceRoom,
    ) -> Loop:
        """Return a loop that has two of these shards on the device at a time, and more of them if
        there is room. Runs on engines without such a loop are refused before they begin."""
        raise NotImplementedError

    def on_host(self) -> AbstractContextManager[None]:
        """Return a context in which what is made lies in the memory of the host."""
        return nullcontext()

    def make_stack(self, model: Any, variables: list[Any], inputs: Sequence[str], loop: Loop) -> Stack | None:
        """Return a way to run a model in many states at once, beside the `loop` of one.

        Return None if it would not give the same bits.
        """
        return None

    def compute_again(self, compute: Again, given: Entering) -> tuple[list[Any], list[Any]]:
        """Return what a function makes of what it is given; nothing within is kept for the backward pass,
        which calls it again. Slopes flow to its tensors, and through the first list of its results."""
        ...

    def to_tensor(self, array: np.ndarray) -> Any:
        """Copy an array to where the backend computes."""
        ...

    def make_forward(self, model: Any, inputs: Sequence[Shape]) -> Forward: ...

    def make_slope(self, model: Any, inputs: Sequence[Shape], score: ScoreOf) -> Callable[[list[Any]], Slope]:
        """Return a function of a model's variables that gives one for the score of its first output."""
        ...

    def make_gradient(self, model: Any, score: ScoreOf) -> Gradient:
        """Return a function that gives the slopes of the mean score along a model's weights."""
        ...

    def to_numpy(self, tensor: Any) -> np.ndarray:
        """Copy a tensor of the backend, or an array, into a new array."""
        return np.array(tensor)

    def seed(self, seed: int) -> None:
        """Seed the backend's own generator, where Keras draws from one."""

    def generator(self) -> Any:
        """Return the state of the backend's own generator."""
        return None

    def set_generator(self, state: Any) -> None:
        """Restore the state of the backend's own generator."""

    def own_variables(self) -> list[Any]:
        """Return variables that training depends on, beside those of the model and the optimizer."""
        return []


class PlainForward:
    """A forward function to which passing the variables costs nothing."""

    def __init__(self, call: Callable[[list[Any], list[np.ndarray]], list[Any]]) -> None:
        self._call = call

    def __call__(self, variables: list[Any], batch: list[np.ndarray]) -> list[Any]:
        return self._call(variables, batch)

    def bound(self, variables: list[Any]) -> BoundForward:
        return partial(self._call, variables)


class VariableLoop:
    """A base class for loops that leave the values in Keras' own variables."""

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
        """Do nothing: the optimizer's numbers are constants of the code."""

    def reset_metrics(self) -> None:
        self._model.reset_metrics()

    def start_pass(self) -> None:
        self.reset_metrics()

    def finish_pass(self) -> None:
        """Put the optimizer's average of the weights in place, if it keeps one, as at the end of a fit."""
        self._model.optimizer.finalize_variable_values(self._model.trainable_weights)

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
    """A cutter of work into pieces of about `SECONDS_PER_CALL`; how work is cut never changes a result."""

    def __init__(self) -> None:
        self._units = 1

    def pieces(self, total: int, tick: Tick) -> Iterator[tuple[int, int]]:
        """Yield ranges of work units, with a tick after each."""
        first = 0
        while first < total:
            last = min(first + self._units, total)
            with self._timed(last - first):
                yield first, last
            tick()
            first = last

    def stretches(self, sizes: Sequence[int], tick: Tick) -> Iterator[tuple[int, int]]:
        """Yield ranges of items, each of several work units and never split, with a tick after each range."""
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
