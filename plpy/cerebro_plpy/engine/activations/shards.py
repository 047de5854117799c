"""Cuts a net into shards, so that a device needs to hold no more than two of them at a time.

The cuts lie where a single tensor passes from layer to layer. They follow from the net, its optimizer, the
memory of the device and the rows of a mini-batch, and from nothing that differs between two visits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from cerebro_plpy.engine.activations import blocks
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError

_NUMBER = 4
# How many limits for the size of a shard are tried.
_LIMITS = 64
# How many tensors a layer needs: its input, its output, and one to compute with.
_PASSING = 3
# How many times the counted bytes a program takes, and how many bytes in addition: for convolutions and
# recurrent layers, XLA needs more than these layers keep.
_PROGRAM_SHARE = 2
_PROGRAM_BYTES = 2**16


@dataclass(frozen=True)
class Span:
    """Consecutive layers of a net, by their places, with the sizes of their weights and outputs."""

    first: int
    last: int
    # The name of the layer with most weights.
    largest: str
    weight_bytes: int
    # What the optimizer keeps for the weights, and what a step needs: slopes, and copies if it makes any.
    slot_bytes: int
    step_bytes: int
    # Numbers per row: that the backward pass needs, of the largest output, and of the last output.
    kept: int
    widest: int
    leaves: int
    # Numbers per row of the net's inputs and labels, which lie on the device all the time; 0 but for the
    # first span.
    given: int

    @property
    def backward_bytes(self) -> int:
        return self.weight_bytes + self.slot_bytes


@dataclass(frozen=True)
class SlotBytes:
    """An optimizer's bytes for one variable: `held` all the time, and `step` more while it is updated."""

    held: int
    step: int


@dataclass(frozen=True)
class DeviceRoom:
    """The memory of a device, and how many rows go through a net at a time.

    `batch_size` is the number of rows in training, and `measured` the number when the net is measured.
    """

    bytes: int
    batch_size: int
    measured: int


def slots_of(optimizer: Any, count: int) -> list[list[Any]]:
    """Return the optimizer's own variables (slots) for each of the `count` variables that it trains.

    The optimizer must be built.
    """
    found: list[list[Any]] = [[] for _ in range(count)]
    for name, value in vars(optimizer).items():
        if is_of_each(name, value, count):
            for own, slot in zip(found, value, strict=True):
                own.extend([slot] if hasattr(slot, "assign") else [])
    return found


def is_of_each(name: str, value: Any, count: int) -> bool:
    """Return whether an attribute of an optimizer has a slot for each of `count` trained variables.

    `name` and `value` are the name and the value of the attribute. The value must be a list of slots, in
    which some may be None.
    """
    if name in _NO_SLOTS or not isinstance(value, list) or len(value) != count:
        return False
    return all(each is None or hasattr(each, "assign") for each in value)


# The variables of the net, and all variables of the optimizer in the order of their making.
_NO_SLOTS = frozenset({"_variables", "_trainable_variables"})


def slot_bytes_of(optimizer: Any, weight: int, held: int) -> SlotBytes:
    """Return the `SlotBytes` of a variable of `weight` bytes, for which an optimizer keeps `held` bytes."""
    # Such a step has the variables that the optimizer keeps twice: as they were, and as they may become.
    twice = optimizer.gradient_accumulation_steps or optimizer.use_ema
    step = 2 * weight + held if twice else weight
    return SlotBytes(held, max(step, _STEP_COPIES.get(type(optimizer).__name__, 1) * weight))


# How often a step has each weight in its memory, its slopes among them, where that is more than once:
# Muon computes products of matrices, Adafactor the squares of slopes and their roots.
_STEP_COPIES = {"Muon": 6, "Adafactor": 2}


def check_optimizer(optimizer: Any, slots: Sequence[Sequence[Any]]) -> None:
    """Raise an error if an update of weights by the optimizer needs all weights at once."""
    if getattr(optimizer, "global_clipnorm", None) is not None:
        raise _refused("global_clipnorm needs the slopes of all weights at once", "Use clipnorm instead.")
    if getattr(optimizer, "loss_scale_factor", None) is not None or hasattr(optimizer, "inner_optimizer"):
        raise _refused("each shard would have to scale the loss", "Leave the scale out; bfloat16 needs none.")
    owned = {id(slot) for own in slots for slot in own}
    if any(len(slot.shape) > 0 for slot in optimizer.variables if id(slot) not in owned):
        kind = type(optimizer).__name__
        raise _refused(f"{kind} keeps more than numbers of each weight", "Use Adam or SGD.")


def cut(model: Any, kept: Sequence[SlotBytes], room: DeviceRoom) -> tuple[Span, ...]:
    """Return the fewest shards with which a net stays within the device's memory.

    `kept` has the optimizer's bytes for each variable that trains. Raise an error if no shards are small
    enough.
    """
    if model.dtype_policy.name == "mixed_float16":
        raise _refused("a net in float16 looks at the slopes of all weights at once", "Use mixed_bfloat16.")
    if any(None in tensor.shape[1:] for tensor in model.inputs):
        raise _refused("the shape of its input leaves a dimension open", "Give the net its shape.")
    spans = _spans(model, kept)
    for part in range(_LIMITS, 0, -1):
        joined = _joined(spans, room.bytes * part / _LIMITS, room)
        if peak_bytes(joined, room) <= room.bytes:
            return joined
    largest = max(spans, key=lambda span: _busy_bytes(span, room))
    apart = _joined(spans, 0, room)
    least, trained = (peak_bytes(apart, one) for one in (room, replace(room, measured=0)))
    rows = f"{room.batch_size} rows in a mini-batch"
    if least > trained:
        rows = f"{room.measured} rows that are measured at a time"
    raise CerebroError(
        f"option device_memory_mb is too small: with these layers and {rows},"
        f" the least is {math.ceil(least / 2**20)}",
        detail=f'Most of it is for layer "{largest.largest}". A net is cut only where one tensor passes.',
        hint="Use more." if least > trained else "Use more, or a smaller batch_size.",
        sqlstate=NOT_SUPPORTED,
    )


def peak_bytes(spans: Sequence[Span], room: DeviceRoom) -> int:
    """Return the most bytes that lie on the device while a net trains or is measured in these shards."""
    given = _NUMBER * sum(span.given for span in spans)
    forward = [(place, span.weight_bytes) for place, span in enumerate(spans[:-1])]
    backward = [(place, span.backward_bytes) for place, span in reversed(list(enumerate(spans)))]
    train = room.batch_size * given + max(
        held + _NUMBER * room.batch_size * sum(span.leaves for span in spans[:-1]) + work
        for held, work in zip(
            _held([*forward, *backward]),
            [_measure_bytes(span, room.batch_size) for span in spans[:-1]]
            + [_train_bytes(span, room.batch_size) for span in reversed(spans)],
            strict=True,
        )
    )
    measured = _held([*forward, (len(spans) - 1, spans[-1].weight_bytes)])
    return max(
        train,
        *(
            held + room.measured * given + _measure_bytes(s, room.measured)
            for held, s in zip(measured, spans, strict=True)
        ),
    )


def _held(steps: Sequence[tuple[int, int]]) -> list[int]:
    """Return the bytes of weights on the device while each of a sequence of shards is computed.

    `steps` has the place and the bytes of each shard in the sequence, which is repeated. The device holds two
    shards at a time: the one that is computed, and the next one.
    """
    following = [*steps[1:], steps[0]]
    return [
        max(own, its) if place == other else own + its
        for (place, own), (other, its) in zip(steps, following, strict=True)
    ]


def _busy_bytes(span: Span, room: DeviceRoom) -> int:
    return max(span.backward_bytes + _train_bytes(span, room.batch_size), _measure_bytes(span, room.measured))


def _train_bytes(span: Span, rows: int) -> int:
    return span.step_bytes + _program_bytes(rows * (span.kept + _PASSING * span.widest))


def _measure_bytes(span: Span, rows: int) -> int:
    return _program_bytes(rows * _PASSING * span.widest)


def _program_bytes(numbers: int) -> int:
    return _PROGRAM_BYTES + _PROGRAM_SHARE * _NUMBER * numbers


def _joined(spans: Sequence[Span], most: float, room: DeviceRoom) -> tuple[Span, ...]:
    """Join consecutive spans to shards, each of which needs at most `most` bytes while it is computed."""
    found = [spans[0]]
    for span in spans[1:]:
        both = _join(found[-1], span)
        if _busy_bytes(both, room) <= most:
            found[-1] = both
        else:
            found.append(span)
    return tuple(found)


def _join(one: Span, other: Span) -> Span:
    return Span(
        first=one.first,
        last=other.last,
        largest=max(one, other, key=lambda span: span.weight_bytes).largest,
        weight_bytes=one.weight_bytes + other.weight_bytes,
        slot_bytes=one.slot_bytes + other.slot_bytes,
        step_bytes=one.step_bytes + other.step_bytes,
        kept=one.kept + other.kept,
        widest=max(one.widest, other.widest),
        leaves=other.leaves,
        given=one.given + other.given,
    )


def _spans(model: Any, kept: Sequence[SlotBytes]) -> list[Span]:
    """Return the spans of a net between each two adjacent places where it can be cut."""
    functional = getattr(model, "_functional", None) or model
    nodes = blocks.nodes_of(functional)
    trained = {id(v): own for v, own in zip(model.trainable_variables, kept, strict=True)}
    ends = [*_places(functional, nodes), len(nodes)]
    spans = [_span(nodes, first, last, trained) for first, last in pairwise([0, *ends])]
    # For each output, a row has at most a label of the output's size, and a weight.
    labels = sum(blocks.size_of(tensor) + 1 for tensor in functional.outputs)
    given = labels + sum(map(blocks.size_of, functional.inputs))
    return [replace(spans[0], given=given), *spans[1:]]


def _span(nodes: Sequence[Any], first: int, last: int, trained: dict[int, SlotBytes]) -> Span:
    inside = nodes[first:last]
    variables = {id(v): v for node in inside for v in _variables(node)}
    uses = [blocks.step_of(node, again=True) for node in inside]
    heaviest = max(inside, key=lambda node: sum(map(bytes_of, _variables(node))))
    return Span(
        first=first,
        last=last,
        largest=heaviest.operation.name,
        weight_bytes=sum(map(bytes_of, variables.values())),
        slot_bytes=sum(trained[key].held for key in variables if key in trained),
        step_bytes=sum(trained[key].step for key in variables if key in trained),
        kept=sum(use.keeps for use in uses),
        widest=max(sum(use.sizes) for use in uses),
        leaves=sum(uses[-1].sizes),
        given=0,
    )


def _places(functional: Any, nodes: Sequence[Any]) -> Iterator[int]:
    """Yield the places between two layers where a net can be cut.

    One tensor without a mask passes there, and no variable is used on both sides.
    """
    last_use = {id(tensor): place for place, node in enumerate(nodes) for tensor in node.input_tensors}
    last_use.update({id(tensor): len(nodes) for tensor in functional.outputs})
    last_read = {id(v): place for place, node in enumerate(nodes) for v in _variables(node)}
    passing = {id(tensor) for tensor in functional.inputs}
    busy_until = 0
    for place, node in enumerate(nodes[:-1]):
        passing = {key for key in passing | {id(t) for t in node.outputs} if last_use.get(key, 0) > place}
        busy_until = max([busy_until, *(last_read[id(v)] for v in _variables(node))])
        # The tensor must be the output of this layer: inputs of the net are at hand all the time.
        alone = passing == {id(tensor) for tensor in node.outputs} and len(passing) == 1
        if alone and busy_until <= place and not _is_masked(node.outputs[0]):
            yield place + 1


def _is_masked(tensor: Any) -> bool:
    return getattr(tensor, "_keras_mask", None) is not None or "float" not in str(tensor.dtype)


def _variables(node: Any) -> Sequence[Any]:
    return getattr(node.operation, "variables", ())


def bytes_of(variable: Any) -> int:
    return math.prod(int(d) for d in variable.shape) * size_of(str(variable.dtype))


def size_of(dtype: str) -> int:
    """Return the bytes of one number of an element type, including types that NumPy does not know."""
    of_like_size = {"bfloat16": "float16", "float8_e4m3fn": "int8", "float8_e5m2": "int8"}
    return np.dtype(of_like_size.get(dtype, dtype)).itemsize


def _refused(why: str, hint: str) -> CerebroError:
    return CerebroError(
        "option device_memory_mb cannot be used with this config",
        detail=f"The reason: {why}.",
        hint=hint,
        sqlstate=NOT_SUPPORTED,
    )
