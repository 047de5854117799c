"""How many bytes a config's state has, before there is one: shapes suffice."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import architecture, calls, symbolic
from .state import OPTIMIZER, OTHER, WEIGHT, size_of

if TYPE_CHECKING:
    from cerebro_plpy.madlib.params import CompileParams


@dataclass(frozen=True)
class Sizes:
    state_bytes: int
    weight_bytes: int


def of_config(architecture_json: str, params: CompileParams) -> Sizes:
    """Of an architecture as `describe` gave it, compiled with these parameters."""
    return _sizes(architecture_json, params.compile_key(), _Hidden(params))


class _Hidden:
    """Parameters that a cache tells apart by their `compile_key` alone."""

    def __init__(self, params: CompileParams) -> None:
        self.params = params

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hidden)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=256)
def _sizes(architecture_json: str, key: str, hidden: _Hidden) -> Sizes:
    def look() -> Sizes:
        with architecture.unallocated():
            model = architecture.build(architecture_json)
            optimizer = calls.optimizer(hidden.params.optimizer)
            optimizer.build(model.trainable_variables)
            weights = {id(weight) for weight in model.weights}
            kinds = [(v, WEIGHT if id(v) in weights else OTHER) for v in model.variables]
            kinds += [(v, OPTIMIZER) for v in optimizer.variables]
            layout = [(v.path, _shape(v), v.dtype, kind) for v, kind in kinds]
            return Sizes(size_of(layout), sum(4 * math.prod(_shape(w)) for w in model.weights))

    return symbolic.without_computing(look)


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(int(dimension) for dimension in variable.shape)
