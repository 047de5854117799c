"""What is asked of a backend of Keras. Each is one file, on_<name>.py; its `make` gives a `KerasBackend`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from . import runtime
from .data import Dataset

if TYPE_CHECKING:
    from .architecture import Shape
    from .stacks import Stack

Tick = Callable[[], None]

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

    def load(self, arrays: list[np.ndarray], known: KnownArrays) -> None:
        """Take up the values of all variables; it has those that are known already."""
        ...

    def save(self, known: KnownArrays) -> list[np.ndarray]:
        """Give them; those that are known are given as they are."""
        ...

    def give(self, optimizer: Any) -> None:
        """Train with the numbers of this optimizer, where code is given them."""
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


class Forward(Protocol):
    """A model's forward pass: a function of its variables, trainable ones first, and of its inputs."""

    def __call__(self, variables: list[Any], batch: list[np.ndarray]) -> list[Any]: ...

    def bound(self, variables: list[Any]) -> BoundForward:
        """A function of the inputs alone."""
        ...


class KerasBackend(Protocol):
    """One of Keras' backends."""

    # Whether another number of rows costs another compilation.
    fixed_rows = False

    def set_up(self, wanted: runtime.Running) -> None:
        """Give it its threads and its GPU."""
        ...

    def has_gpu(self) -> bool: ...

    def make_loop(self, model: Any, variables: list[Any], inputs: Sequence[str], whole: Any) -> Loop:
        """A loop whose code is given these numbers of the optimizer (madlib/inputs.py), with the bits of the
        whole model, of which this may be a part."""
        ...

    def make_stack(self, model: Any, variables: list[Any], inputs: Sequence[str], loop: Loop) -> Stack | None:
        """A way to run a model in many states at once, beside the `loop` of one; none where it would not give
        the same bits."""
        return None

    def to_tensor(self, array: np.ndarray) -> Any:
        """Copy to where it computes."""
        ...

    def make_forward(self, model: Any, inputs: Sequence[Shape]) -> Forward: ...

    def to_numpy(self, tensor: Any) -> np.ndarray:
        """Copy a tensor of its own, or what is an array already."""
        return np.array(tensor)

    def seed(self, seed: int) -> None:
        """Seed its own generator, where Keras draws from one."""

    def generator(self) -> Any:
        """The state of that generator."""
        return None

    def set_generator(self, state: Any) -> None:
        """Put it back."""

    def own_variables(self) -> list[Any]:
        """What training depends on beside the variables of model and optimizer."""
        return []


class PlainForward:
    """A function that costs nothing for the variables that it is given."""

    def __init__(self, call: Callable[[list[Any], list[np.ndarray]], list[Any]]) -> None:
        self._call = call

    def __call__(self, variables: list[Any], batch: list[np.ndarray]) -> list[Any]:
        return self._call(variables, batch)

    def bound(self, variables: list[Any]) -> BoundForward:
        return partial(self._call, variables)


class VariableLoop:
    """What loops have in common that leave the values in Keras' own variables."""

    def __init__(self, model: Any, variables: list[Any]) -> None:
        self._model = model
        self._variables = variables

    def load(self, arrays: list[np.ndarray], known: KnownArrays) -> None:
        changing = [place for place in range(len(arrays)) if place not in known]
        _assign([self._variables[place] for place in changing], [arrays[place] for place in changing])

    def save(self, known: KnownArrays) -> list[np.ndarray]:
        return [
            known[place] if place in known else runtime.to_numpy(variable)
            for place, variable in enumerate(self._variables)
        ]

    def give(self, optimizer: Any) -> None:
        """Its numbers are constants of the code."""

    def reset_metrics(self) -> None:
        self._model.reset_metrics()

    def start_pass(self) -> None:
        self.reset_metrics()

    def finish_pass(self) -> None:
        """Optimizers that keep an average of the weights put it in place at the end of a fit."""
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
    """Cuts work in pieces that last about `SECONDS_PER_CALL`; how it is cut never changes a result."""

    def __init__(self) -> None:
        self._units = 1

    def pieces(self, total: int, tick: Tick) -> Iterator[tuple[int, int]]:
        """Give ranges of work units, with a tick after each."""
        first = 0
        while first < total:
            last = min(first + self._units, total)
            with self._timed(last - first):
                yield first, last
            tick()
            first = last

    def stretches(self, sizes: Sequence[int], tick: Tick) -> Iterator[tuple[int, int]]:
        """The same for work that comes in things of several units, each of which stays whole."""
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
