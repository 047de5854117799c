"""Computes the bytes of a config's state before the state is made, from shapes alone."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cerebro_plpy import memory
from cerebro_plpy.engine.activations import shards
from cerebro_plpy.engine.activations.shards import DeviceRoom, Span
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture, calls
from cerebro_plpy.engine.models import frozen, symbolic
from cerebro_plpy.engine.state import OPTIMIZER, OTHER, WEIGHT, size_of

if TYPE_CHECKING:
    from cerebro_plpy.madlib.params import CompileParams

# Stand-ins for a variable's dimensions: small, and all different, so that they can be told apart in the
# shapes of the optimizer's variables.
_STAND_INS: tuple[int, ...] = (2, 3, 5, 7, 11, 13, 17)


@dataclass(frozen=True)
class Sizes:
    # Bytes of the stored state, without its frozen variables, and bytes of these.
    state_bytes: int
    frozen_bytes: int
    weight_bytes: int


@dataclass(frozen=True)
class _SizedVariable:
    path: str
    shape: tuple[int, ...]
    dtype: str
    kind: str
    trainable: bool
    frozen: bool


def of_config(architecture_json: str, params: CompileParams) -> Sizes:
    """Return the sizes of a config's state; `architecture_json` is the `json` of a `DescribedModel`."""
    known, key = memory.get_instance(_KnownSizes), (architecture_json, params.compile_key())
    if key not in known:
        own = _variables(architecture_json)
        kept = _kept(calls.optimizer(params.optimizer), [v for v in own if v.trainable])
        layout = [*((v.path, v.shape, v.dtype, v.kind) for v in own), *kept]
        still = [place for place, v in enumerate(own) if v.frozen]
        known[key] = Sizes(
            state_bytes=size_of(layout, still),
            frozen_bytes=size_of([("", *layout[place][1:]) for place in still]) if still else 0,
            weight_bytes=sum(4 * math.prod(v.shape) for v in own if v.kind == WEIGHT),
        )
    return known[key]


def shards_of(architecture_json: str, params: CompileParams, room: DeviceRoom) -> tuple[Span, ...]:
    """Return the shards in which a config's net trains on a device with this room."""
    known, key = memory.get_instance(_KnownShards), (architecture_json, params.compile_key(), room)
    if key not in known:
        known[key] = _shards_of(architecture_json, params, room)
    return known[key]


def _shards_of(architecture_json: str, params: CompileParams, room: DeviceRoom) -> tuple[Span, ...]:
    trained = [v for v in _variables(architecture_json) if v.trainable]
    optimizer = calls.optimizer(params.optimizer)
    _build(optimizer, trained)
    slots = shards.slots_of(optimizer, len(trained))
    shards.check_optimizer(optimizer, slots)
    kept = []
    for own, of in zip(slots, trained, strict=True):
        held = sum(math.prod(_shape_for(slot, of)) * shards.size_of(str(slot.dtype)) for slot in own)
        weight = math.prod(of.shape) * shards.size_of(of.dtype)
        kept.append(shards.slot_bytes_of(optimizer, weight, held))

    def look() -> tuple[Span, ...]:
        with architecture.unallocated():
            return shards.cut(architecture.build(architecture_json), kept, room)

    return symbolic.without_computing(look)


class _KnownShards(dict[tuple[str, str, DeviceRoom], tuple[Span, ...]]):
    """The shards of nets by architecture, compile parameters without numeric learning rates, and device."""


class _KnownSizes(dict[tuple[str, str], Sizes]):
    """The sizes of states by architecture and by the compile parameters without numeric learning rates."""


@functools.lru_cache(maxsize=64)
def _variables(architecture_json: str) -> Sequence[_SizedVariable]:
    def look() -> list[_SizedVariable]:
        with architecture.unallocated():
            model = architecture.build(architecture_json)
            weights = {id(weight) for weight in model.weights}
            trainable = {id(variable) for variable in model.trainable_variables}
            still = frozen.frozen(model)
            return [
                _SizedVariable(
                    path=v.path,
                    shape=tuple(int(d) for d in v.shape),
                    dtype=str(v.dtype),
                    kind=WEIGHT if id(v) in weights else OTHER,
                    trainable=id(v) in trainable,
                    frozen=id(v) in still,
                )
                for v in model.variables
            ]

    return symbolic.without_computing(look)


def _kept(optimizer: Any, trained: Sequence[_SizedVariable]) -> list[tuple[str, Sequence[int], str, str]]:
    """Return the path, shape, element type and kind of each variable that an optimizer keeps.

    `trained` are the variables that the optimizer trains.
    """
    found = []
    _build(optimizer, trained)
    by_name = {variable.path.replace("/", "_"): variable for variable in trained}
    for slot in optimizer.variables:
        of = _find_weight(slot.path, by_name) if slot.shape else None
        shape = _shape(slot) if of is None else _shape_for(slot, of)
        found.append((slot.path, shape, str(slot.dtype), OPTIMIZER))
    return found


def _build(optimizer: Any, trained: Sequence[_SizedVariable]) -> None:
    """Build an optimizer for small stand-ins of the variables that it is to train, to save memory.

    The dimensions of a stand-in all differ, so that `_shape_for` can recognize each of them.
    """
    small: list[Any] = []
    for variable in trained:
        zeros = np.zeros(_STAND_INS[: len(variable.shape)], variable.dtype)
        stand_in = runtime.keras().Variable(zeros)
        stand_in._path = variable.path
        small.append(stand_in)
    optimizer.build(small)


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(int(d) for d in variable.shape)


def _shape_for(slot: Any, of: _SizedVariable) -> tuple[int, ...]:
    """Return the shape that an optimizer's variable has for the trained variable `of`.

    `slot` was made for a small stand-in of `of`; its dimensions are replaced by those of `of`.
    """
    dimensions = dict(zip(_STAND_INS, of.shape, strict=False))
    return tuple(dimensions.get(d, d) for d in _shape(slot))


def _find_weight(path: str, by_name: dict[str, _SizedVariable]) -> _SizedVariable | None:
    """Return the trained variable that is named in the path of an optimizer's variable, or None."""
    within = [name for name in by_name if name in path]
    return by_name[max(within, key=len)] if within else None
