"""Checks the parameter `options` of the preprocessors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.features import asked
from cerebro_plpy.features.asked import AskedColumns
from cerebro_plpy.logical.options import (
    LARGEST,
    LEAST_MEMORY_MB,
    Validator,
    boolean,
    integer,
    one_of,
    parse_options,
)
from cerebro_plpy.packing.dividing import folds, grouping, holdout

# Each segment is a table with its TOAST table and index, all locked by one transaction.
MOST_SEGMENTS = 1024
# More could not be stored in one field.
MOST_VALUES = 2**27


@dataclass(frozen=True)
class PackOptions:
    """The checked keys of a preprocessor's parameter `options`."""

    segments: int | None = None
    seed: int = 1
    shape: Mapping[str | None, tuple[int, ...]] = field(default_factory=dict)
    task: str | None = None
    memory_mb: int = 512
    columns: AskedColumns | None = None
    also_categories: bool = False
    exclude: tuple[str, ...] = ()
    validation: Mapping[str, Any] | None = None
    weight: str | None = None
    folds: Mapping[str, Any] | None = None
    group_by: tuple[str, ...] | None = None


def parse(text: str | None, allowed: Mapping[str, Validator]) -> PackOptions:
    """Return the options in a JSON text; raise an error for a wrong value or a key that is not `allowed`."""
    return PackOptions(**parse_options(text, allowed))


def _shapes(key: str, value: object) -> dict[str | None, tuple[int, ...]]:
    """Return the shape of each input by its name; a single list is the shape of the only input (key None)."""
    if isinstance(value, Mapping):
        return {str(name): _shape(key, shape) for name, shape in value.items()}
    return {None: _shape(key, value)}


def _shape(key: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise CerebroError(
            f"option {key} has {json.dumps(value)} where a list of sizes is expected",
            hint='Write {"shape": [32, 32, 3]}, or {"shape": {"column": [32, 32, 3]}} for several inputs.',
        )
    shape = tuple(integer(1, MOST_VALUES)(key, size) for size in value)
    if math.prod(shape) > MOST_VALUES:
        raise CerebroError(f"option {key} makes rows of {math.prod(shape)} values, more than {MOST_VALUES}")
    return shape


VALIDATION: Mapping[str, Validator] = {"memory_mb": integer(LEAST_MEMORY_MB)}
TRAINING: Mapping[str, Validator] = {
    **VALIDATION,
    "segments": integer(1, MOST_SEGMENTS),
    "seed": integer(-LARGEST),
    "shape": _shapes,
    "task": one_of("classification", "regression"),
    "columns": asked.columns,
    "also_categories": boolean(),
    "exclude": asked.excluded,
    "validation": holdout.option,
    "weight": holdout.text,
    "folds": folds.option,
    "group_by": grouping.option,
}
