"""Random numbers that depend only on a seed and a purpose, such as ("rows", epoch, segment)."""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, *purpose: int | str) -> int:
    """Return a 128-bit number derived from the seed and all values of the purpose."""
    text = "\x1f".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def derive_small(seed: int, *purpose: int | str) -> int:
    """Return the lowest 31 bits of `derive`, for libraries that take no larger seed."""
    return derive(seed, *purpose) & 0x7FFFFFFF


def permutation(count: int, seed: int, *purpose: int | str) -> np.ndarray:
    """Return the numbers 0 to count - 1 in an order derived from the seed and the purpose.

    It uses only the raw bits of Philox, because NumPy does not guarantee that its higher methods, such as
    `permutation`, give the same numbers in all versions.
    """
    raw = np.random.Philox(key=derive(seed, *purpose)).random_raw(count)
    return np.argsort(raw, kind="stable")
