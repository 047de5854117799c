"""The workloads: rows, nets and configs, all made from fixed seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

VALIDATION_SHARE = 0.1
PICTURE = (64, 64, 3)


@dataclass(frozen=True)
class Rows:
    """The rows of a source table: features as flat vectors, and class labels."""

    x: np.ndarray
    y: np.ndarray

    def part(self, first: int, last: int) -> Rows:
        return Rows(self.x[first:last], self.y[first:last])


@dataclass(frozen=True)
class Config:
    net: int
    learning_rate: float
    batch_size: int


@dataclass(frozen=True)
class Workload:
    """A job that every contender does: rows, nets, configs and epochs."""

    name: str
    about: str
    shape: tuple[int, ...]
    classes: int
    rows: int
    make: Callable[[int], Rows] = field(repr=False)
    nets: Sequence[str] = field(repr=False)
    configs: Sequence[Config] = field(repr=False)
    epochs: int
    weights: Sequence[Sequence[np.ndarray]] | None = field(default=None, repr=False)
    """Of each net, where it begins with given ones."""

    @property
    def validation_rows(self) -> int:
        return round(self.rows * VALIDATION_SHARE)

    @property
    def training_rows(self) -> int:
        return self.rows - self.validation_rows

    def data(self) -> tuple[Rows, Rows]:
        """Return training and validation rows."""
        all_rows = self.make(self.rows)
        return all_rows.part(self.validation_rows, self.rows), all_rows.part(0, self.validation_rows)


def sequential(shape: Sequence[int], layers: Sequence[tuple[str, dict[str, object]]]) -> str:
    """Return a Keras Sequential as JSON, written without Keras."""
    entries = [
        {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [None, *shape]}}
    ]
    entries += [{"module": "keras.layers", "class_name": name, "config": config} for name, config in layers]
    return json.dumps(
        {"module": "keras", "class_name": "Sequential", "config": {"name": "net", "layers": entries}}
    )


def mlp(inputs: int, hidden: Sequence[int], classes: int) -> str:
    layers = [_dense(units, "relu") for units in hidden]
    return sequential([inputs], [*layers, _dense(classes, "softmax")])


def cnn(shape: Sequence[int], filters: Sequence[int], hidden: int, classes: int) -> str:
    layers: list[tuple[str, dict[str, object]]] = []
    for number in filters:
        layers.append(("Conv2D", {"filters": number, "kernel_size": [3, 3], "activation": "relu"}))
        layers.append(("MaxPooling2D", {"pool_size": [2, 2]}))
    return sequential(shape, [*layers, ("Flatten", {}), _dense(hidden, "relu"), _dense(classes, "softmax")])


def trunk(filters: Sequence[int], convolutions: int, hidden: Sequence[int]) -> str:
    """Return the JSON of a net for pictures: frozen blocks of convolutions, and a head that is trained."""
    layers: list[tuple[str, dict[str, object]]] = []
    for number, count in enumerate(filters, 1):
        config = {"filters": count, "kernel_size": [3, 3], "padding": "same", "activation": "relu"}
        layers += [("Conv2D", {**config, "trainable": False})] * convolutions
        layers.append(("MaxPooling2D", {"pool_size": [2, 2], "name": f"block_{number}"}))
    layers.append(("GlobalAveragePooling2D", {}))
    heads = [_dense(units, "relu") for units in hidden]
    return sequential(PICTURE, [*layers, *heads, _dense(10, "softmax")])


def trunk_weights(filters: Sequence[int], convolutions: int, hidden: Sequence[int]) -> list[np.ndarray]:
    """Return the weights of a `trunk` in Keras' order: He-normal kernels, and biases of 0."""
    random = np.random.default_rng(5)
    before, found = PICTURE[-1], list[np.ndarray]()
    shapes: list[tuple[int, ...]] = []
    for count in filters:
        for _ in range(convolutions):
            shapes.append((3, 3, before, count))
            before = count
    for units in (*hidden, 10):
        shapes.append((before, units))
        before = units
    for shape in shapes:
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        found += [(random.normal(0, scale, shape)).astype(np.float32), np.zeros(shape[-1], np.float32)]
    return found


def _dense(units: int, activation: str) -> tuple[str, dict[str, object]]:
    return ("Dense", {"units": units, "activation": activation})


def _digits(rows: int) -> Rows:
    """Return scikit-learn's digits in a seeded order; rows after the first 1,797 repeat them with noise."""
    from sklearn.datasets import load_digits

    images, labels = map(np.asarray, load_digits(return_X_y=True))
    random = np.random.default_rng(1)
    order = np.concatenate([random.permutation(len(labels)) for _ in range(-(-rows // 1797))])[:rows]
    x = images[order].astype(np.float32) / 16
    x[1797:] += random.normal(0, 0.05, x[1797:].shape).astype(np.float32)
    return Rows(x, labels[order].astype(np.int32))


def _images(rows: int) -> Rows:
    """Return images of ten classes: the pattern of the class, shifted at random, with much noise."""
    random = np.random.default_rng(2)
    patterns = random.normal(0, 1, (10, 8, 8, 3)).repeat(4, axis=1).repeat(4, axis=2)
    y = random.integers(0, 10, rows)
    shifts = random.integers(-6, 7, (rows, 2))
    x = np.stack([np.roll(patterns[c], s, (0, 1)) for c, s in zip(y, shifts, strict=True)])
    x = x + random.normal(0, 3, x.shape)
    return Rows(x.reshape(rows, -1).astype(np.float32), y.astype(np.int32))


def _pictures(rows: int) -> Rows:
    """Return pictures of 64 x 64 pixels of ten classes: the pattern of the class, with noise."""
    random = np.random.default_rng(4)
    patterns = random.normal(0, 1, (10, 8, 8, 3)).astype(np.float32).repeat(8, axis=1).repeat(8, axis=2)
    y = random.integers(0, 10, rows)
    x = patterns[y] + random.normal(0, 1, (rows, *PICTURE)).astype(np.float32)
    return Rows(x.reshape(rows, -1), y.astype(np.int32))


def _wide(rows: int) -> Rows:
    """Return rows of two classes, which a nonlinear function divides; one label in twenty is wrong."""
    random = np.random.default_rng(3)
    x = random.normal(0, 1, (rows, 512)).astype(np.float32)
    plane = random.normal(0, 1, (512, 8)).astype(np.float32) / np.sqrt(512)
    signs = np.tanh(2 * (x @ plane)).sum(axis=1) > 0
    return Rows(x, (signs ^ (random.random(rows) < 0.05)).astype(np.int32))


def _grid(rates: Sequence[float], batches: Sequence[int], nets: Sequence[int] = (0,)) -> list[Config]:
    return [Config(net, rate, batch) for net, rate, batch in product(nets, rates, batches)]


_RATES = (0.01, 0.003, 0.001, 0.0003)
_SMALL = mlp(64, [128, 64], 10)
# Ten times the arithmetic for each row.
_LARGE = mlp(64, [512, 256], 10)
_BIG = mlp(64, [4960, 4960], 10)

DIGITS = Workload(
    "digits",
    "1,797 digits of 8x8 pixels, MLP 64-128-64-10, 16 configs (4 learning rates x 4 batch sizes), 5 epochs",
    (64,), 10, 1797, _digits, [_SMALL], _grid(_RATES, (32, 64, 128, 256)), 5,
)  # fmt: skip
IMAGES = Workload(
    "images",
    "6,000 images of 32x32x3, CNN 16-32-64-10, 8 configs (2 learning rates x 4 batch sizes), 2 epochs",
    (32, 32, 3), 10, 6000, _images, [cnn((32, 32, 3), [16, 32], 64, 10)],
    _grid((0.001, 0.0003), (32, 64, 128, 256)), 2,
)  # fmt: skip
WIDE = Workload(
    "wide",
    "60,000 rows of 512 floats, MLP 1000-500-2, 8 configs (2 learning rates x 4 batch sizes), 2 epochs",
    (512,), 2, 60000, _wide, [mlp(512, [1000, 500], 2)], _grid((0.001, 0.0003), (64, 128, 256, 512)), 2,
)  # fmt: skip
MIXED = Workload(
    "mixed",
    "the digits, 12 small nets (64-128-64-10) and 4 large ones (64-512-256-10, small batches), 10 epochs",
    (64,), 10, 1797, _digits, [_SMALL, _LARGE],
    [*_grid(_RATES[:3], (32, 64, 128, 256)), *_grid(_RATES[1:3], (8, 16), [1])], 10,
)  # fmt: skip
BIG = Workload(
    "big",
    "4 configs of an MLP 64-4960-4960-10 (100 MB of weights, 300 MB of state), 12,000 rows, 1 epoch",
    (64,), 10, 12000, _digits, [_BIG], _grid((0.0003, 0.0001, 0.00003, 0.00001), (256,)), 1,
)  # fmt: skip
_BLOCKS, _HEADS = (16, 32, 64, 64), ((64,), (32,))
PICTURES = Workload(
    "pictures",
    "3,000 pictures of 64x64x3, four frozen blocks of a convolution (16-32-64-64), 8 configs of their heads"
    " (2 heads x 4 learning rates), 10 epochs",
    PICTURE, 10, 3000, _pictures, [trunk(_BLOCKS, 1, head) for head in _HEADS],
    _grid(_RATES, (32,), (0, 1)), 10, [trunk_weights(_BLOCKS, 1, head) for head in _HEADS],
)  # fmt: skip

ALL = {workload.name: workload for workload in (DIGITS, IMAGES, WIDE, MIXED, BIG, PICTURES)}
QUICK_ROWS = {"digits": 1797, "images": 1500, "wide": 10000}


def named(name: str, rows: int | None = None) -> Workload:
    return ALL[name] if rows is None else replace(ALL[name], rows=rows)
