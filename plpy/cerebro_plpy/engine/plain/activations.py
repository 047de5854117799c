"""Activations computed by NumPy, as Keras computes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray
Apply = Callable[[Array], Array]


def _sigmoid(x: Array) -> Array:
    # The argument of exp is never large, so that it does not overflow.
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


# So few values are faster without arrays.
FEW = 32


def softmax(x: Array) -> Array:
    if x.size <= FEW and x.shape[:-1] == (1,):
        return _softmax_of_few(x)
    # For one row, reduce() is faster than max() and sum().
    e = np.exp(x - np.maximum.reduce(x, axis=-1, keepdims=True))
    return e / np.add.reduce(e, axis=-1, keepdims=True)


def _softmax_of_few(x: Array) -> Array:
    values = x[0].tolist()
    most = max(values)
    # NaN is not less than or equal to anything, and infinity less infinity is NaN.
    powers = [math.exp(value - most) if value - most <= 0 else math.nan for value in values]
    total = sum(powers)
    return np.array([[power / total for power in powers]], np.float32)


def _elu(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def linear(x: Array) -> Array:
    return x


_ZERO = np.float32(0)


def positive(x: Array) -> Array:
    return np.maximum(x, _ZERO)


def _relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


def _hard_sigmoid(x: Array) -> Array:
    return np.clip(x / 6 + 0.5, 0, 1)


def _selu(x: Array) -> Array:
    return 1.0507009873554805 * _elu(x, 1.6732632423543772)


def _softplus(x: Array) -> Array:
    return np.logaddexp(x, 0)


def _softsign(x: Array) -> Array:
    return x / (1 + np.abs(x))


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _leaky(x: Array) -> Array:
    return np.where(x > 0, x, 0.2 * x)


def _erf(x: Array) -> Array:
    """Return the error function to within 2e-7, by formula 7.1.26 of Abramowitz and Stegun's handbook."""
    size = np.abs(x)
    t = 1 / (1 + np.float32(0.3275911) * size)
    powers = np.float32(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        powers = powers * t + np.float32(factor)
    return np.copysign(1 - powers * t * np.exp(-size * size), x)


def _gelu(x: Array) -> Array:
    return np.float32(0.5) * x * (1 + _erf(x / np.float32(math.sqrt(2))))


ACTIVATIONS: Mapping[str, Apply] = {
    "linear": linear,
    "relu": positive,
    "relu6": _relu6,
    "softmax": softmax,
    "sigmoid": _sigmoid,
    "hard_sigmoid": _hard_sigmoid,
    "tanh": np.tanh,
    "elu": _elu,
    "selu": _selu,
    "softplus": _softplus,
    "softsign": _softsign,
    "exponential": np.exp,
    "gelu": _gelu,
    "silu": _silu,
    "swish": _silu,
    "leaky_relu": _leaky,
}
