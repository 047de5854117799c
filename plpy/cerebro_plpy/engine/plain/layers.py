"""Layers computed by NumPy, as Keras computes them: for a first answer without waiting for an engine.

Each function makes the forward pass of one layer from the layer's parameters. It takes the parameters that it
knows; if others are left, or a value is not known, NotHere is raised. All arrays are float32, channels come
last. tests/unit/test_plain.py compares each entry of LAYERS with Keras.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from cerebro_plpy.engine.plain.activations import ACTIVATIONS, Apply, Array, linear, positive, softmax

Size = tuple[int, ...]
# Returns the next weights of the model, in the given shape.
Take = Callable[..., Array]
# Returns a layer's output from the outputs of the layers before it.
LayerCall = Callable[..., Array]
# Makes a layer's forward pass for inputs whose rows have the given shape.
Make = Callable[["Params", Size, Take], LayerCall]


class NotHere(Exception):
    """Raised for a layer, or for a parameter of a layer, that only an engine can compute."""


class Params:
    """The parameters of a layer, from which a function takes those that it knows, each once."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._left = {name: value for name, value in given.items() if not _is_idle(name)}
        policy = self._left.pop("dtype", None)
        if isinstance(policy, Mapping) and policy.get("class_name") == "DTypePolicy":
            policy = policy["config"]["name"]
        if policy not in (None, "float32"):
            raise NotHere

    def take(self, name: str, default: Any = None) -> Any:
        return self._left.pop(name, default)

    def want(self, **values: Any) -> None:
        """Take the named parameters; raise NotHere if one has another value than the given one."""
        for name, value in values.items():
            if self.take(name, value) != value:
                raise NotHere

    def pair(self, name: str, rank: int, default: int | None = 1) -> Size:
        found = self.take(name, default)
        return (found,) * rank if isinstance(found, int) else tuple(found)

    def activation(self, name: str = "activation", default: str = "linear") -> Apply:
        found = self.take(name, default)
        if isinstance(found, Mapping) and found.get("class_name") == "function":
            found = found["config"]
        if found is None:
            found = "linear"
        if not isinstance(found, str) or found not in ACTIVATIONS:
            raise NotHere
        return ACTIVATIONS[found]

    def end(self) -> None:
        if self._left:
            raise NotHere


def _is_idle(name: str) -> bool:
    """Return whether a parameter does not change a layer's output, for example a name or an initializer."""
    return name.endswith(("_initializer", "_regularizer", "_constraint")) or name in {
        "name", "trainable", "seed", "autocast", "lora_rank", "lora_alpha", "quantization_config",
    }  # fmt: skip


def _identity(params: Params, shape: Size, take: Take) -> Apply:
    for name in ("rate", "stddev", "l1", "l2", "noise_shape", "data_format"):
        params.take(name)
    return linear


def _activation(params: Params, shape: Size, take: Take) -> Apply:
    return params.activation()


def _softmax_layer(params: Params, shape: Size, take: Take) -> Apply:
    if params.take("axis", -1) not in (-1, len(shape)):
        raise NotHere
    return softmax


def _relu(params: Params, shape: Size, take: Take) -> Apply:
    most, slope, threshold = (
        params.take("max_value"),
        params.take("negative_slope", 0.0),
        params.take("threshold", 0.0),
    )
    if threshold or (slope and most is not None):
        raise NotHere
    if not slope:
        return positive if most is None else lambda x: positive(np.minimum(x, np.float32(most)))

    def apply(x: Array) -> Array:
        return np.where(x > 0, x, slope * x)

    return apply


def _leaky_relu(params: Params, shape: Size, take: Take) -> Apply:
    slope = params.take("negative_slope", 0.3)

    def apply(x: Array) -> Array:
        return np.where(x > 0, x, slope * x)

    return apply


def _dense(params: Params, shape: Size, take: Take) -> Apply:
    units, activate = params.take("units"), params.activation()
    kernel = take(shape[-1], units)
    bias = take(units) if params.take("use_bias", True) else np.float32(0)

    def apply(x: Array) -> Array:
        # For one row, this is faster than @ and than np.dot(); for more than two axes, it is slow.
        found = x.dot(kernel) if x.ndim == 2 else x.reshape(-1, x.shape[-1]).dot(kernel)
        found += bias
        return activate(found.reshape(*x.shape[:-1], units))

    return apply


def _flatten(params: Params, shape: Size, take: Take) -> Apply:
    _channels_last(params)

    return lambda x: x.reshape(len(x), -1)


def _reshape(params: Params, shape: Size, take: Take) -> Apply:
    target = tuple(params.take("target_shape"))
    return lambda x: x.reshape(len(x), *target)


def _permute(params: Params, shape: Size, take: Take) -> Apply:
    dims = tuple(params.take("dims"))
    return lambda x: x.transpose(0, *dims)


def _rescaling(params: Params, shape: Size, take: Take) -> Apply:
    scale, offset = params.take("scale"), params.take("offset", 0.0)
    if not _is_numbers(scale) or not _is_numbers(offset):
        raise NotHere
    factor, shift = np.asarray(scale, np.float32), np.asarray(offset, np.float32)
    return lambda x: x * factor + shift


def _is_numbers(value: object) -> bool:
    each = value if isinstance(value, list) else [value]
    return all(isinstance(one, int | float) for one in each)


def _embedding(params: Params, shape: Size, take: Take) -> Apply:
    params.want(mask_zero=False, input_length=None, weights=None)
    rows = params.take("input_dim")
    table = take(rows, params.take("output_dim"))

    def apply(x: Array) -> Array:
        if x.size == 1:
            # For one row, this takes a third of the time.
            place = x.item()
            # NaN is in no interval.
            if not -1 < place < rows:
                raise NotHere
            return table[int(place)].reshape(*x.shape, -1)
        places = x.astype(np.int32)
        if places.size and not (places.min() >= 0 and places.max() < rows):
            raise NotHere
        return table[places]

    return apply


def _batch_normalization(params: Params, shape: Size, take: Take) -> Apply:
    _last_axis(params, shape)
    for name in ("momentum", "synchronized", "renorm_momentum", "renorm_clipping"):
        params.take(name)
    params.want(renorm=False)
    epsilon, size = params.take("epsilon", 1e-3), shape[-1]
    gamma = take(size) if params.take("scale", True) else np.float32(1)
    beta = take(size) if params.take("center", True) else np.float32(0)
    mean, variance = take(size), take(size)
    factor = gamma / np.sqrt(variance + np.float32(epsilon))

    def apply(x: Array) -> Array:
        return x * factor + (beta - mean * factor)

    return apply


def _layer_normalization(params: Params, shape: Size, take: Take) -> Apply:
    _last_axis(params, shape)
    params.want(rms_scaling=False)
    epsilon, size = params.take("epsilon", 1e-3), shape[-1]
    gamma = take(size) if params.take("scale", True) else np.float32(1)
    beta = take(size) if params.take("center", True) else np.float32(0)

    share, least = np.float32(1 / size), np.float32(epsilon)

    def apply(x: Array) -> Array:
        # For one row, this is several times as fast as mean().
        found = x - np.add.reduce(x, axis=-1, keepdims=True) * share
        variance = np.einsum("...i,...i->...", found, found)[..., np.newaxis] * share
        variance += least
        found /= np.sqrt(variance, out=variance)
        # Factors of several twins make several results of one.
        return found * gamma + beta

    return apply


def _normalization(params: Params, shape: Size, take: Take) -> Apply:
    params.want(invert=False)
    mean, variance = params.take("mean"), params.take("variance")
    if np.ndim(mean) > 1:
        params.want(axis=list(range(1, len(shape) + 1)))
    _last_axis(params, shape)
    if mean is None:
        mean, variance, _ = take(shape[-1]), take(shape[-1]), take()
    mean, deviation = np.asarray(mean, np.float32), np.sqrt(np.asarray(variance, np.float32))
    divisor = np.maximum(deviation, np.float32(1e-7))

    def apply(x: Array) -> Array:
        return (x - mean) / divisor

    return apply


def _last_axis(params: Params, shape: Size) -> None:
    axis = params.take("axis", -1)
    if axis not in (-1, len(shape), [-1], [len(shape)]):
        raise NotHere


def _channels_last(params: Params) -> None:
    if params.take("data_format") not in (None, "channels_last"):
        raise NotHere


def _windows(x: Array, size: Size, strides: Size, dilation: Size) -> Array:
    """Return the input in each window, with the axes: rows, windows, channels, places in the window."""
    reach = tuple((n - 1) * d + 1 for n, d in zip(size, dilation, strict=True))
    axes = tuple(range(1, 1 + len(size)))
    found = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
    steps = tuple(slice(None, None, s) for s in strides)
    within = tuple(slice(None, None, d) for d in dilation)
    return found[(slice(None), *steps, slice(None), *within)]


def _padding(kind: str, shape: Size, size: Size, strides: Size, dilation: Size) -> list[tuple[int, int]]:
    """Return, for each axis of a window, how many places the padding adds before and after the input."""
    if kind == "valid":
        return [(0, 0)] * len(size)
    reach = [(n - 1) * d for n, d in zip(size, dilation, strict=True)]
    if kind == "causal" and len(size) == 1:
        return [(reach[0], 0)]
    if kind != "same":
        raise NotHere
    added = [
        max(0, (-(-length // stride) - 1) * stride + r + 1 - length)
        for length, stride, r in zip(shape, strides, reach, strict=True)
    ]
    return [(n // 2, n - n // 2) for n in added]


def _pad(x: Array, padding: Sequence[tuple[int, int]], value: float = 0.0) -> Array:
    if not any(map(any, padding)):
        return x
    return np.pad(x, [(0, 0), *padding, (0, 0)], constant_values=value)


def _convolution(rank: int) -> Make:
    def make(params: Params, shape: Size, take: Take) -> Apply:
        _channels_last(params)
        params.want(groups=1)
        filters, activate = params.take("filters"), params.activation()
        size, strides = params.pair("kernel_size", rank), params.pair("strides", rank)
        dilation, kind = params.pair("dilation_rate", rank), params.take("padding", "valid")
        kernel = take(*size, shape[-1], filters)
        bias = take(filters) if params.take("use_bias", True) else np.float32(0)
        # In the order of the windows: channels first, then the places within.
        weights = np.moveaxis(kernel, -2, 0).reshape(-1, filters)

        def apply(x: Array) -> Array:
            padded = _pad(x, _padding(kind, x.shape[1:-1], size, strides, dilation))
            seen = _windows(padded, size, strides, dilation)
            flat = seen.reshape(*seen.shape[: 1 + rank], -1)
            return activate(flat @ weights + bias)

        return apply

    return make


def _pooling(rank: int, kind: str) -> Make:
    def make(params: Params, shape: Size, take: Take) -> Apply:
        _channels_last(params)
        size = params.pair("pool_size", rank, 2)
        strides = params.take("strides")
        steps = (
            size if strides is None else ((strides,) * rank if isinstance(strides, int) else tuple(strides))
        )
        padding, once = params.take("padding", "valid"), (1,) * rank
        within = tuple(range(-rank, 0))

        def apply(x: Array) -> Array:
            added = _padding(padding, x.shape[1:-1], size, steps, once)
            if kind == "max":
                return _windows(_pad(x, added, -np.inf), size, steps, once).max(axis=within)
            total = _windows(_pad(x, added), size, steps, once).sum(axis=within)
            # Added places do not count.
            return total / _windows(_pad(np.ones_like(x), added), size, steps, once).sum(axis=within)

        return apply

    return make


def _cropping(params: Params, shape: Size, take: Take) -> Apply:
    before, behind = params.pair("cropping", 2, 1)

    def apply(x: Array) -> Array:
        return x[:, before : x.shape[1] - behind]

    return apply


def _global_pooling(rank: int, kind: str) -> Make:
    def make(params: Params, shape: Size, take: Take) -> Apply:
        _channels_last(params)
        params.want(keepdims=False)
        axes = tuple(range(1, 1 + rank))

        def apply(x: Array) -> Array:
            if kind == "max":
                return x.max(axis=axes)
            # For one row, this is faster than mean().
            return np.add.reduce(x, axis=axes) / prod(x.shape[1 : 1 + rank])

        return apply

    return make


# Returns the next states from an input and the states. A cell comes with its units and number of states.
Advance = Callable[[Array, Sequence[Array]], Sequence[Array]]
Cell = Callable[["Params", int, "Take"], tuple[Advance, int, int]]


def _recurrent(
    cell: Callable[[Params, int, Take], tuple[Advance, int, int]],
) -> Make:
    """Return the maker of a recurrent layer; the output of the layer is the first of the states of `cell`."""

    def make(params: Params, shape: Size, take: Take) -> Apply:
        params.want(return_state=False, stateful=False, zero_output_for_mask=False, time_major=False)
        for name in ("dropout", "recurrent_dropout", "unroll", "implementation", "use_cudnn"):
            params.take(name)
        all_steps, backwards = params.take("return_sequences", False), params.take("go_backwards", False)
        step, units, states = cell(params, shape[-1], take)

        def apply(x: Array) -> Array:
            now: Sequence[Array] = [np.zeros((len(x), units), np.float32)] * states
            out = []
            for place in range(x.shape[1]):
                now = step(x[:, -1 - place if backwards else place], now)
                out.append(now[0])
            return np.stack(out, axis=1) if all_steps else out[-1]

        return apply

    return make


def _simple_cell(params: Params, width: int, take: Take) -> tuple[Advance, int, int]:
    units, activate = params.take("units"), params.activation(default="tanh")
    kernel, recurrent = take(width, units), take(units, units)
    bias = take(units) if params.take("use_bias", True) else np.float32(0)
    return lambda x, now: [activate(x @ kernel + now[0] @ recurrent + bias)], units, 1


def _lstm_cell(params: Params, width: int, take: Take) -> tuple[Advance, int, int]:
    units, activate = params.take("units"), params.activation(default="tanh")
    gate = params.activation("recurrent_activation", "sigmoid")
    params.take("unit_forget_bias")
    kernel, recurrent = take(width, 4 * units), take(units, 4 * units)
    bias = take(4 * units) if params.take("use_bias", True) else np.float32(0)

    def step(x: Array, now: Sequence[Array]) -> Sequence[Array]:
        into, forget, candidate, out = np.split(x @ kernel + now[0] @ recurrent + bias, 4, axis=1)
        carried = gate(forget) * now[1] + gate(into) * activate(candidate)
        return [gate(out) * activate(carried), carried]

    return step, units, 2


def _gru_cell(params: Params, width: int, take: Take) -> tuple[Advance, int, int]:
    units, activate = params.take("units"), params.activation(default="tanh")
    gate = params.activation("recurrent_activation", "sigmoid")
    params.want(reset_after=True)
    kernel, recurrent = take(width, 3 * units), take(units, 3 * units)
    biases = take(2, 3 * units) if params.take("use_bias", True) else np.zeros((2, 1), np.float32)

    def step(x: Array, now: Sequence[Array]) -> Sequence[Array]:
        update, reset, candidate = np.split(x @ kernel + biases[0], 3, axis=1)
        was_update, was_reset, was = np.split(now[0] @ recurrent + biases[1], 3, axis=1)
        kept = gate(update + was_update)
        new = activate(candidate + gate(reset + was_reset) * was)
        return [kept * now[0] + (1 - kept) * new]

    return step, units, 1


def _folded(fold: Callable[[Array, Array], Array]) -> Make:
    def make(params: Params, shape: Size, take: Take) -> LayerCall:
        def apply(*inputs: Array) -> Array:
            return functools.reduce(fold, inputs)

        return apply

    return make


def _average(params: Params, shape: Size, take: Take) -> LayerCall:
    def apply(*inputs: Array) -> Array:
        return functools.reduce(np.add, inputs) / np.float32(len(inputs))

    return apply


def _concatenate(params: Params, shape: Size, take: Take) -> LayerCall:
    axis = params.take("axis", -1)

    def apply(*inputs: Array) -> Array:
        return np.concatenate(inputs, axis=axis)

    return apply


LAYERS: Mapping[str, Make] = {
    "Activation": _activation,
    "ActivityRegularization": _identity,
    "Add": _folded(np.add),
    "AlphaDropout": _identity,
    "Average": _average,
    "AveragePooling1D": _pooling(1, "mean"),
    "AveragePooling2D": _pooling(2, "mean"),
    "BatchNormalization": _batch_normalization,
    "Concatenate": _concatenate,
    "Conv1D": _convolution(1),
    "Conv2D": _convolution(2),
    "Cropping1D": _cropping,
    "Dense": _dense,
    "Dropout": _identity,
    "Embedding": _embedding,
    "Flatten": _flatten,
    "GRU": _recurrent(_gru_cell),
    "GaussianDropout": _identity,
    "GaussianNoise": _identity,
    "GlobalAveragePooling1D": _global_pooling(1, "mean"),
    "GlobalAveragePooling2D": _global_pooling(2, "mean"),
    "GlobalMaxPooling1D": _global_pooling(1, "max"),
    "GlobalMaxPooling2D": _global_pooling(2, "max"),
    "Identity": _identity,
    "LSTM": _recurrent(_lstm_cell),
    "LayerNormalization": _layer_normalization,
    "LeakyReLU": _leaky_relu,
    "MaxPooling1D": _pooling(1, "max"),
    "MaxPooling2D": _pooling(2, "max"),
    "Maximum": _folded(np.maximum),
    "Minimum": _folded(np.minimum),
    "Multiply": _folded(np.multiply),
    "Normalization": _normalization,
    "Permute": _permute,
    "ReLU": _relu,
    "Rescaling": _rescaling,
    "Reshape": _reshape,
    "SimpleRNN": _recurrent(_simple_cell),
    "Softmax": _softmax_layer,
    "SpatialDropout1D": _identity,
    "SpatialDropout2D": _identity,
}
