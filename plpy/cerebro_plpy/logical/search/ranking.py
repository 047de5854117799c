"""Ranks configs by their values."""

from __future__ import annotations

from collections.abc import Mapping


def rank(values: Mapping[int, float | None]) -> list[int]:
    """Return the keys of the configs that have a value, the lowest value first.

    Configs with equal values are in the order of their keys.
    """
    return [key for _, key in sorted((value, key) for key, value in values.items() if value is not None)]
