"""Layers of ensembles, and of nets whose members train as one net, computed by NumPy as in `layers.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cerebro_plpy.engine.plain.activations import Apply, Array, linear
from cerebro_plpy.engine.plain.layers import LayerCall, Make, NotHere, Params, Size, Take
from cerebro_plpy.madlib.layers import FUNCTIONS, MEMBERS, MEMBERS_REGISTERED, OPERATIONS, TAKE

_EQUATION = re.compile(r"([a-z]+),([a-z]+)->([a-z]+)")
# The modules and registered names of layers and operations that keras.layers does not have.
PLACES = {
    MEMBERS: (None, (MEMBERS_REGISTERED,)),
    **{name: (OPERATIONS, (None, name)) for name in (TAKE, *FUNCTIONS)},
}


def _members(params: Params, shape: Size, take: Take) -> Apply:
    params.take("classes")
    return linear


def _repeat_vector(params: Params, shape: Size, take: Take) -> Apply:
    times = params.take("n")

    def apply(x: Array) -> Array:
        return np.repeat(x[:, np.newaxis], times, axis=1)

    return apply


def _take(params: Params, shape: Size, take: Take) -> Apply:
    places, axis = params.take("indices"), params.take("axis")
    if axis not in (-1, len(shape)) or not all(isinstance(place, int) for place in places):
        raise NotHere
    chosen = np.asarray(places, np.intp)

    def apply(x: Array) -> Array:
        return x.take(chosen, axis=-1)

    return apply


def _function(name: str) -> Make:
    def make(params: Params, shape: Size, take: Take) -> Apply:
        return getattr(np, name.lower())

    return make


def _einsum_dense(params: Params, shape: Size, take: Take) -> Apply:
    equation, sizes = params.take("equation"), params.take("output_shape")
    match = _EQUATION.fullmatch(equation)
    if match is None:
        raise NotHere
    taken, kernel, given = match.groups()
    known = dict(zip(taken[1:], shape, strict=True))
    sizes = [sizes] if isinstance(sizes, int) else sizes
    known |= {letter: size for letter, size in zip(given[1:], sizes, strict=True) if size is not None}
    weights = take(*[known[letter] for letter in kernel])
    axes, activate = params.take("bias_axes"), params.activation()
    if axes and not given.endswith(axes):
        raise NotHere
    bias = take(*[known[letter] for letter in axes]) if axes else np.float32(0)

    product = _product(taken, kernel, given)

    def apply(x: Array) -> Array:
        return activate(product(x, weights) + bias)

    return apply


def _product(taken: str, kernel: str, given: str) -> Callable[[Array, Array], Array]:
    """Return a function that computes the einsum `taken,kernel->given`, if possible without einsum.

    For one row, einsum takes longer to read an equation than to compute it.
    """
    if kernel == taken[1:] and given == taken:
        return np.multiply
    if kernel == given[1:] and taken == given[0] + given[2:]:
        return lambda x, weights: x[:, np.newaxis] * weights
    if kernel == given[1:] and taken == given[:-1]:
        return lambda x, weights: x[..., np.newaxis] * weights
    row, apart, out = taken[0], given[1], kernel[-1]
    if given != row + apart + out or out in taken or sorted(kernel[:-1]) != sorted(taken[1:]):
        return partial(np.einsum, f"{taken},{kernel}->{given}", optimize=True)
    (summed,) = {*taken} - {row, apart}
    of_rows = tuple(map(taken.index, (apart, row, summed)))
    of_weights = tuple(map(kernel.index, (apart, summed, out)))

    def multiply(x: Array, weights: Array) -> Array:
        return np.matmul(x.transpose(of_rows), weights.transpose(of_weights)).transpose(1, 0, 2)

    return multiply


def multiply_twins(config: Mapping[str, Any], weights: Sequence[Array], activate: Apply) -> LayerCall | None:
    """Return the forward pass of EinsumDense layers that differ only in their stacked `weights`.

    Values have the twins on their first axis. Return None for an equation that is not known.
    """
    match = _EQUATION.fullmatch(config["equation"])
    if match is None:
        return None
    taken, kernel, given = match.groups()
    factors, axes = weights[0], config.get("bias_axes") or ""
    missing = len(given) - 1 - len(axes)
    bias: Any = np.float32(0)
    if axes:
        bias = weights[1].reshape(len(factors), *[1] * (missing + 1), *weights[1].shape[1:])
    widened = factors[:, np.newaxis]
    if kernel == taken[1:] and given == taken:
        return lambda x: activate(x * widened + bias)
    if kernel == given[1:] and taken == given[0] + given[2:]:
        return lambda x: activate(x[:, :, np.newaxis] * widened + bias)
    if kernel == given[1:] and taken == given[:-1]:
        return lambda x: activate(x[..., np.newaxis] * widened + bias)
    row, apart, out = taken[0], given[1], kernel[-1]
    if given != row + apart + out or out in taken or sorted(kernel[:-1]) != sorted(taken[1:]):
        return None
    (summed,) = {*taken} - {row, apart}
    of_rows = (0, *[1 + taken.index(letter) for letter in (apart, row, summed)])
    of_weights = (0, *[1 + kernel.index(letter) for letter in (apart, summed, out)])
    turned = factors.transpose(of_weights)
    return lambda x: activate(np.matmul(x.transpose(of_rows), turned).transpose(0, 2, 1, 3) + bias)


LAYERS: Mapping[str, Make] = {
    "EinsumDense": _einsum_dense,
    **{name: _function(name) for name in FUNCTIONS},
    MEMBERS: _members,
    "RepeatVector": _repeat_vector,
    TAKE: _take,
}
