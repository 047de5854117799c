"""Examines a net: the sizes of its weights and of a loss's gradients, and its dead and saturated units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.backends.interfaces import ScoreOf
from cerebro_plpy.engine.models.inference import Inference, Loaded

# Activations that are 0 on one side, where a unit learns nothing.
_RECTIFYING = ("relu", "relu6")
# The least and the greatest value of activations that are flat at both ends.
_BOUNDED = {"tanh": (-1.0, 1.0), "sigmoid": (0.0, 1.0), "hard_sigmoid": (0.0, 1.0), "softsign": (-1.0, 1.0)}
# A unit is at an end of its range within this share of the width, and saturated if it is there for this share
# of the rows.
_NEAR, _MOSTLY = 0.01, 0.95

Batch = tuple[list[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class LayerFacts:
    """Facts about a layer: the quadratic means of its weights and of their gradients, and its units.

    `dead` and `saturated` are shares of the units. A fact that the layer does not have is None.
    """

    name: str
    kind: str
    units: int | None
    weights: float | None
    gradient: float | None
    dead: float | None
    saturated: float | None
    is_finite: bool


@dataclass
class _UnitCounts:
    """Counts for each unit of a layer: whether any of its outputs was not 0, and how many were at an end.

    An end is the least or the greatest value of the activation.
    """

    activation: str
    rows: int = 0
    lives: Any = False
    at_end: Any = 0

    def add(self, output: np.ndarray) -> None:
        flat = output.reshape(-1, output.shape[-1])
        self.rows += len(flat)
        self.lives = self.lives | (flat != 0).any(axis=0)
        if self.activation in _BOUNDED:
            low, high = _BOUNDED[self.activation]
            near = _NEAR * (high - low)
            self.at_end = self.at_end + ((flat < low + near) | (flat > high - near)).sum(axis=0)

    @property
    def dead(self) -> float | None:
        return float(1 - np.mean(self.lives)) if self.activation in _RECTIFYING else None

    @property
    def saturated(self) -> float | None:
        if self.activation not in _BOUNDED:
            return None
        return float(np.mean(self.at_end >= _MOSTLY * self.rows))


def inspect(net: Inference, loaded: Loaded, loss: ScoreOf, batches: Iterable[Batch]) -> list[LayerFacts]:
    """Return facts about each layer of a net, from a loss on batches with the same number of rows."""
    model, layers = net.model, _layers(net.model)
    gradient = runtime.get_keras_backend().make_gradient(model, loss)
    # The last layers are flat by design: it is no fault if a net is sure of its answers.
    inner = {layer.name: _UnitCounts(_activation(layer)) for layer in layers if not _is_last(model, layer)}
    watched = [layer for layer in layers if layer.name in inner and inner[layer.name].activation]
    outputs = _make_outputs(net, loaded, watched)
    sums: list[np.ndarray] = [np.zeros(1)] * len(model.trainable_variables)
    count = 0
    for inputs, given in batches:
        slopes = gradient(loaded.tensors, inputs, given)
        sums = [total + slope.astype(np.float64) for total, slope in zip(sums, slopes, strict=True)]
        count += 1
        for layer, output in zip(watched, outputs(inputs), strict=True):
            inner[layer.name].add(output)
    means = {
        id(variable): total / max(1, count)
        for variable, total in zip(model.trainable_variables, sums, strict=True)
    }
    values = {id(variable): tensor for variable, tensor in zip(net.variables, loaded.tensors, strict=True)}
    return [_facts(layer, values, means, inner.get(layer.name)) for layer in layers]


def _layers(model: Any) -> list[Any]:
    return [layer for layer in model.layers if layer.weights or _activation(layer)]


def _activation(layer: Any) -> str:
    """Return the name of a layer's activation; an empty text if units with it are not examined."""
    if type(layer).__name__ == "ReLU":
        return "relu"
    name = getattr(getattr(layer, "activation", None), "__name__", "")
    return name if name in _RECTIFYING or name in _BOUNDED else ""


def _first_output(layer: Any) -> Any:
    """Return the first tensor that a layer returns: a recurrent one may return its states behind it."""
    found = layer.output
    return found[0] if isinstance(found, list | tuple) else found


def _is_last(model: Any, layer: Any) -> bool:
    return any(tensor._keras_history.operation is layer for tensor in model.outputs)


def _make_outputs(
    net: Inference, loaded: Loaded, layers: Sequence[Any]
) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    """Return a function that computes the outputs of these layers from the inputs of the net."""
    if not layers:
        return lambda inputs: []
    model = net.model
    part = runtime.keras().Model(model.inputs, [_first_output(layer) for layer in layers])
    values = {id(variable): tensor for variable, tensor in zip(net.variables, loaded.tensors, strict=True)}
    variables = [values[id(one)] for one in (*part.trainable_variables, *part.non_trainable_variables)]
    shapes = [tuple(tensor.shape[1:]) for tensor in model.inputs]
    forward = runtime.get_keras_backend().make_forward(part, shapes)
    return lambda inputs: [np.asarray(one) for one in forward(variables, inputs)]


def _facts(
    layer: Any, values: dict[int, Any], means: dict[int, np.ndarray], counts: _UnitCounts | None
) -> LayerFacts:
    weights = [runtime.to_numpy(values[id(one)]) for one in layer.weights]
    slopes = [means[id(one)] for one in layer.trainable_weights if id(one) in means]
    watched = counts if counts is not None and counts.activation else None
    units = _first_output(layer).shape[-1]
    return LayerFacts(
        name=layer.name,
        kind=type(layer).__name__,
        units=None if units is None else int(units),
        weights=_quadratic_mean(weights),
        gradient=_quadratic_mean(slopes),
        dead=None if watched is None else watched.dead,
        saturated=None if watched is None else watched.saturated,
        is_finite=all(bool(np.isfinite(one).all()) for one in weights),
    )


def _quadratic_mean(arrays: Sequence[np.ndarray]) -> float | None:
    size = sum(array.size for array in arrays)
    if not size:
        return None
    with np.errstate(all="ignore"):
        return float(np.sqrt(sum(float(np.square(one.astype(np.float64)).sum()) for one in arrays) / size))
