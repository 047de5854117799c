"""Chooses the blocks of layers whose outputs are computed again in the backward pass.

A block keeps only the tensors that enter it. While the backward pass is within a block, the outputs of all
its layers are in memory again. So a few large blocks keep little, but need much memory one after the other,
and many small blocks the reverse. The best sizes lie between.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

# How many sizes of blocks are compared.
_SIZES = 16
# How many numbers layers keep for each number of their output, as the memory of compiled programs shows.
# In recurrent layers, these are the gates and slopes of each time step.
_GATES = {
    **dict.fromkeys(("LSTM", "RNN", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"), 14),
    "GRU": 16,
    "SimpleRNN": 5,
}
_LIKE_LAYER_NORMALIZATION = 4
# In addition to the output of the activation, which counts as one.
_BEFORE_ACTIVATION = {"linear": 0, "softmax": 0, "gelu": 3, "silu": 2, "mish": 3}


@dataclass(frozen=True)
class LayerUse:
    """One use of a layer: the ids of the tensors that it takes and makes, and how many numbers it keeps.

    `sizes` are the numbers per row of each tensor made, and `keeps` the numbers per row that the backward
    pass needs. `again` says whether the backward pass may compute the layer again.
    """

    takes: tuple[int, ...]
    makes: tuple[int, ...]
    sizes: tuple[int, ...]
    keeps: int
    again: bool


@dataclass(frozen=True)
class LayerBlock:
    """Consecutive uses of layers; if `again`, they are computed again from the tensors that enter them."""

    first: int
    last: int
    again: bool
    enters: tuple[int, ...]
    leaves: tuple[int, ...]


def nodes_of(functional: Any) -> list[Any]:
    """Return the uses of layers in a functional model, in the order in which Keras computes them."""
    depths = sorted(functional._nodes_by_depth, reverse=True)
    nodes = [node for depth in depths for node in functional._nodes_by_depth[depth]]
    return [node for node in nodes if node.operation and not node.is_input]


def is_model(layer: Any) -> bool:
    return hasattr(getattr(layer, "_functional", None) or layer, "_nodes_by_depth")


def step_of(node: Any, again: bool) -> LayerUse:
    """Return the facts about one use of a layer; `again` says whether it may be computed again.

    A use whose outputs have no gradients, such as masks, is computed only once: its outputs are small.
    """
    again = again and all("float" in str(tensor.dtype) for tensor in node.outputs)
    sizes = tuple(size_of(tensor) for tensor in node.outputs)
    return LayerUse(
        takes=tuple(id(tensor) for tensor in node.input_tensors),
        makes=tuple(id(tensor) for tensor in node.outputs),
        sizes=sizes,
        keeps=_kept(node, sum(sizes)),
        again=again,
    )


def size_of(tensor: Any) -> int:
    """Return how many numbers per row a tensor has; a dimension that is left open counts as 1."""
    return math.prod(d or 1 for d in tensor.shape[1:])


def _kept(node: Any, made: int) -> int:
    """Return about how many numbers per row a layer keeps for the backward pass, including its output.

    `node` is a use of the layer, and `made` is how many numbers per row its outputs have.
    """
    layer = node.operation
    kind = type(layer).__name__
    if kind in _GATES:
        before, after = node.input_tensors[0].shape, node.outputs[0].shape
        steps = (before[1] or 1) if len(before) > 2 else 1
        # The outputs of one step: a layer returns those of the last step, or of each.
        units = math.prod(d or 1 for d in (after[2:] if len(after) == len(before) > 2 else after[1:]))
        return _GATES[kind] * steps * units
    if hasattr(layer, "num_heads") or hasattr(layer, "num_query_heads"):
        heads = getattr(layer, "num_heads", 0) or layer.num_query_heads
        length = node.input_tensors[0].shape[1] or 1
        return 4 * made + 3 * heads * length * length
    inside = len(getattr(layer, "_layers", []) or [])
    return made * _times(layer, kind) * (1 + inside)


def _times(layer: Any, kind: str) -> int:
    """Return how many numbers the backward pass needs for each number of a layer's output.

    `kind` is the name of the layer's class.
    """
    if "Normalization" in kind and kind != "BatchNormalization":
        return _LIKE_LAYER_NORMALIZATION
    activation = getattr(getattr(layer, "activation", None), "__name__", "linear")
    before = _BEFORE_ACTIVATION.get(activation, 1)
    if kind == "Activation":
        # An Activation shares its input with the layer that made the input.
        return max(1, before)
    return 1 + before + (kind.endswith("Dropout") or kind.startswith("Separable"))


def choose(steps: Sequence[LayerUse], outputs: Collection[int]) -> list[LayerBlock]:
    """Return the uses of layers, divided into the blocks with which the backward pass needs least memory.

    `steps` has the uses in the order in which Keras computes them, and `outputs` the ids of the tensors that
    the model returns.
    """
    alive = _alive(steps, outputs)
    best: tuple[float, list[int]] = (math.inf, [])
    for most in _bounds(steps):
        kept, ends = _cheapest(steps, alive, most)
        best = min(best, (kept + most, ends))
    ends = best[1]
    return [
        _part(steps, outputs, first, last, final=last == len(steps))
        for first, last in zip([0, *ends], ends, strict=False)
    ]


def _bounds(steps: Sequence[LayerUse]) -> list[int]:
    """Return the sizes, in numbers per row, that `choose` tries as the largest size of a block."""
    low = max((step.keeps for step in steps if step.again), default=1)
    high = max(low, sum(step.keeps for step in steps if step.again))
    return sorted({round(low * (high / low) ** (n / _SIZES)) for n in range(_SIZES + 1)})


def _alive(steps: Sequence[LayerUse], outputs: Collection[int]) -> list[int]:
    """Return how many numbers per row are still needed later, at each place between two uses of layers."""
    last_use = {tensor: place for place, step in enumerate(steps) for tensor in step.takes}
    last_use.update(dict.fromkeys(outputs, len(steps)))
    passing = [0] * (len(steps) + 1)
    for place, step in enumerate(steps):
        for tensor, size in zip(step.makes, step.sizes, strict=True):
            for between in range(place + 1, last_use.get(tensor, place) + 1):
                passing[between] += size
    return passing


def _cheapest(steps: Sequence[LayerUse], alive: Sequence[int], most: int) -> tuple[float, list[int]]:
    """Return how few numbers per row blocks of limited size can keep, and the ends of these blocks.

    No block may need more than `most` numbers per row while it is computed again. `alive` has, for each place
    between two uses of layers, how many numbers are still needed later. The ends are indexes in `steps`.
    """
    kept, came = [0.0], [0]
    for end in range(1, len(steps) + 1):
        # One step by itself: it keeps what it makes, and where it may not be computed again all of it.
        own = alive[end] if steps[end - 1].again else max(alive[end], steps[end - 1].keeps)
        least, where, size, start = kept[end - 1] + own, end - 1, 0, end - 1
        while start >= 0 and steps[start].again:
            size += steps[start].keeps
            if size > most:
                break
            if kept[start] + alive[end] <= least:
                least, where = kept[start] + alive[end], start
            start -= 1
        kept.append(least)
        came.append(where)
    ends = [len(steps)]
    while came[ends[-1]]:
        ends.append(came[ends[-1]])
    return kept[-1], ends[::-1]


def _part(
    steps: Sequence[LayerUse], outputs: Collection[int], first: int, last: int, *, final: bool
) -> LayerBlock:
    inside = steps[first:last]
    made = {tensor: size for step in inside for tensor, size in zip(step.makes, step.sizes, strict=True)}
    later = {tensor for step in steps[last:] for tensor in step.takes} | set(outputs)
    enters = dict.fromkeys(t for step in inside for t in step.takes if t not in made)
    leaves = [tensor for tensor in made if tensor in later]
    keeps, passed = sum(step.keeps for step in inside), sum(made[tensor] for tensor in leaves)
    # The outputs of the last layers are needed at once; layers that keep only their outputs gain nothing.
    again = all(step.again for step in inside) and not final and keeps > passed
    return LayerBlock(first, last, again, tuple(enters), tuple(leaves))
