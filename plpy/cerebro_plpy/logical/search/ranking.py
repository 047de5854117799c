"""Ranks configs by what they have reached."""

from __future__ import annotations

from collections.abc import Mapping


def rank(values: Mapping[int, float | None]) -> list[int]:
    """Return the keys of the configs that have a value, best first; equal ones go by their keys."""
    return [key for _, key in sorted((value, key) for key, value in values.items() if value is not None)]
