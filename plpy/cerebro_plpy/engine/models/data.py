"""Rows in memory, in the form that the training loops use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

ONE_HOT = "one-hot"
INDEX = "index"
VALUE = "value"
# Not a target, but the weights of the rows, which are kept with the targets.
WEIGHT = "weight"

# The alignment of arrays in memory; TensorFlow and JAX copy arrays that begin elsewhere.
ALIGNMENT = 64

SPARSE = "sparse"
DENSE = "dense"
BINARY = "binary"


@dataclass(frozen=True)
class Target:
    """Labels as stored: one-hot int16 (n, C), int32 class indices (n), float32 values or weights (n, …)."""

    values: np.ndarray
    kind: str


@dataclass(frozen=True)
class TargetForm:
    """The form in which a loss needs labels: class indices, `width` floats, or one column of 0 and 1."""

    name: str
    width: int | None


# For each output, the weights of classes; None where all classes count the same.
ClassWeights = Sequence[dict[int, float] | None] | None


@dataclass
class Dataset:
    """Some rows: the model's inputs and targets, with data that was computed from them."""

    inputs: list[np.ndarray]
    targets: list[Target]
    _derived: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> int:
        return len(self.inputs[0])

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.inputs) + sum(t.values.nbytes for t in self.targets)

    def derived(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the data for `key`, which `make` computes at the first call; keep it as long as the rows."""
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]

    def target(self, number: int, form: TargetForm) -> np.ndarray:
        return self.derived(("target", number, form), partial(convert, self.targets[number], form))

    @property
    def weights(self) -> np.ndarray | None:
        """The weights of the rows, if the packed table has any; else None."""
        last = self.targets[-1]
        return last.values.reshape(-1) if last.kind == WEIGHT else None

    def sample_weights(self, class_weight: ClassWeights) -> list[np.ndarray]:
        """Return the weights of the rows: their own weights times the weights of their classes.

        The list is empty without any weights. With class weights it has an array for each output, else a
        single array.
        """
        own = self.weights
        if class_weight is None:
            return [] if own is None else [own]
        found = []
        for target, weights in zip(self.targets, class_weight, strict=False):
            key = ("weight", len(found), tuple(sorted((weights or {}).items())))
            by_class = self.derived(key, partial(_sample_weight, target, weights or {}))
            found.append(by_class if own is None else by_class * own)
        return found

    def take(self, rows: np.ndarray) -> Dataset:
        return Dataset(
            [array[rows] for array in self.inputs],
            [Target(target.values[rows], target.kind) for target in self.targets],
        )


@dataclass(frozen=True)
class Block:
    """Rows of one dataset, in the order in which a training loop uses them."""

    dataset: Dataset
    order: np.ndarray


def convert(target: Target, form: TargetForm) -> np.ndarray:
    """Return stored labels in the form that a loss needs."""
    if target.kind == VALUE:
        return np.ascontiguousarray(target.values, np.float32)
    if form.name == SPARSE:
        return _indices(target)
    if form.name == BINARY:
        return _indices(target).astype(np.float32)[..., np.newaxis]
    if target.kind == ONE_HOT:
        return target.values.astype(np.float32)
    return np.eye(form.width or 0, dtype=np.float32)[target.values]


def batched(blocks: Iterable[Block], batch_size: int) -> Iterator[Block]:
    """Yield the rows of blocks as new blocks, so that a batch can have rows of several blocks.

    Each new block holds full batches, except that the last one may end with a smaller batch.
    """
    rest: Dataset | None = None
    for block in blocks:
        order = block.order
        if rest is not None:
            missing = min(batch_size - rest.rows, len(order))
            rest = concatenate([rest, block.dataset.take(order[:missing])], rest.rows + missing)
            order = order[missing:]
            if rest.rows < batch_size:
                continue
            yield whole(rest)
        full = len(order) - len(order) % batch_size
        if full:
            yield Block(block.dataset, order[:full])
        rest = block.dataset.take(order[full:]) if full < len(order) else None
    if rest is not None:
        yield whole(rest)


def whole(dataset: Dataset) -> Block:
    return Block(dataset, np.arange(dataset.rows))


def concatenate(datasets: Iterable[Dataset], rows: int) -> Dataset:
    """Return a dataset with the rows of several datasets, which has `rows` rows in all.

    The datasets are requested one after the other, each when the rows before it have been copied.
    """
    joined: list[np.ndarray] = []
    kinds: list[str] = []
    done = 0
    for dataset in datasets:
        arrays = [*dataset.inputs, *(target.values for target in dataset.targets)]
        if not joined:
            joined = [room((rows, *array.shape[1:]), array.dtype) for array in arrays]
            kinds = [target.kind for target in dataset.targets]
        for own, array in zip(joined, arrays, strict=True):
            own[done : done + dataset.rows] = array
        done += dataset.rows
    inputs = len(joined) - len(kinds)
    return Dataset(joined[:inputs], [Target(a, kind) for a, kind in zip(joined[inputs:], kinds, strict=True)])


def room(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return an array to be filled, in memory that every engine can use without a copy."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def is_shareable(array: np.ndarray) -> bool:
    """Return whether an engine on the processors can use the array's own memory."""
    return array.ctypes.data % ALIGNMENT == 0 and array.flags.writeable and array.flags.c_contiguous


def _indices(target: Target) -> np.ndarray:
    if target.kind == INDEX:
        return target.values.astype(np.int32, copy=False)
    return target.values.argmax(axis=-1).astype(np.int32)


def _sample_weight(target: Target, class_weight: dict[int, float]) -> np.ndarray:
    """Return the weight of each row's class, as in Keras: a class that is not named has the weight 1."""
    if not class_weight:
        return np.ones(len(target.values), np.float32)
    classes = np.rint(target.values).astype(np.int32) if target.kind == VALUE else _indices(target)
    result = np.ones(len(classes), np.float32)
    for label, weight in class_weight.items():
        result[classes.reshape(len(classes), -1)[:, 0] == label] = weight
    return result
