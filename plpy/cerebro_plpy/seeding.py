"""Random numbers that are a pure function of a seed and of their purpose."""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, *purpose: int | str) -> int:
    """Return a 128-bit number that depends on the seed and every word of the purpose."""
    text = "\x1f".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def derive_small(seed: int, *purpose: int | str) -> int:
    """Return a number as `derive` does, of 31 bits, for libraries that take no larger seed."""
    return derive(seed, *purpose) & 0x7FFFFFFF


def permutation(count: int, seed: int, *purpose: int | str) -> np.ndarray:
    """Shuffle 0..count-1.

    Only the raw bit stream of Philox is used: NumPy guarantees that one for ever,
    and not the streams of its higher methods.
    """
    raw = np.random.Philox(key=derive(seed, *purpose)).random_raw(count)
    return np.argsort(raw, kind="stable")
