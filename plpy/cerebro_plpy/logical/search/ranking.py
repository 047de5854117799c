"""Configs in the order of what they have reached."""

from __future__ import annotations

from collections.abc import Mapping


def rank(values: Mapping[int, float | None]) -> list[int]:
    """Give the keys of the configs that have a value, best first; of equal ones the smaller key."""
    return [key for _, key in sorted((value, key) for key, value in values.items() if value is not None)]
