"""Computes layers that differ only in their weights as one, as the members of an ensemble have them.

For one row, NumPy spends nearly all its time on calling functions. So eight nets of the same layers, stacked,
take little longer than one. A stacked value has the twins on its first axis, and the rows on its second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cerebro_plpy.engine.plain.activations import Array, linear
from cerebro_plpy.engine.plain.layers import LAYERS, LayerCall, Params, Size
from cerebro_plpy.engine.plain.members import multiply_twins
from cerebro_plpy.engine.plain.nodes import LayerNode

# Layers whose weights are vectors along the last axis.
_ALONG_THE_LAST = ("BatchNormalization", "LayerNormalization")


@dataclass(frozen=True)
class MadeLayer:
    """A layer with its forward pass, its weights, and the shape of a row of its first source."""

    node: LayerNode
    apply: LayerCall
    weights: Sequence[Array]
    shape: Size


@dataclass(frozen=True)
class _TwinOutput:
    """A layer's output: that of a twin in a group of layers, or without `twin`, the group's only output."""

    group: int
    twin: int | None = None


@dataclass(frozen=True)
class _Group:
    """Layers that differ only in their weights, by the number of the twin; without weights, one layer.

    A twin takes the outputs of the twins with its own number, unless `sources` has a number.
    """

    sources: Sequence[_TwinOutput]
    layers: dict[int | None, MadeLayer] = field(default_factory=dict)

    @property
    def twins(self) -> list[int | None]:
        """The numbers of the twins in the order in which their outputs are stacked."""
        return sorted(self.layers, key=lambda twin: -1 if twin is None else twin)


# A call and the places of the values that it takes; and how to get one layer's output from a value.
LayerStep = tuple[LayerCall, tuple[int, ...]]


@dataclass(frozen=True)
class Stacked:
    """The steps of a net; for the name of each layer, the place of its output, and the twin in it, if any."""

    steps: Sequence[LayerStep]
    places: Mapping[str, tuple[int, int | None]]


def stack(inputs: Sequence[str], layers: Sequence[MadeLayer]) -> Stacked:
    """Return the steps that compute the layers of a net, each after its sources, from the values `inputs`."""
    values = {name: _TwinOutput(place) for place, name in enumerate(inputs)}
    groups: dict[int, _Group] = {}
    known: dict[str, int] = {}
    for made in layers:
        sources = [values[name] for name in made.node.sources]
        if made.apply is linear:
            values[made.node.name] = sources[0]
        else:
            values[made.node.name] = _join(made, sources, groups, known, len(inputs))
    steps = [(_call(group, groups), tuple(one.group for one in group.sources)) for group in groups.values()]
    return Stacked(steps, {name: (one.group, _place(one, groups)) for name, one in values.items()})


def _join(
    made: MadeLayer,
    sources: Sequence[_TwinOutput],
    groups: dict[int, _Group],
    known: dict[str, int],
    first: int,
) -> _TwinOutput:
    """Put a layer into the group of its twins, which may be a new one, and return its output."""
    twins = {one.twin for one in sources if one.twin is not None}
    follows = len(twins) == 1
    taken = [_TwinOutput(one.group) for one in sources] if follows else sources
    described = _describe(made.node)
    # If two layers have the same sources, and only their weights differ, each has a group of its own.
    for number in range(len(known) + 1):
        key = json.dumps([described, [vars(one) for one in taken], number], sort_keys=True)
        place = known.setdefault(key, first + len(groups))
        group = groups.setdefault(place, _Group(taken))
        if follows:
            twin: int | None = min(twins)
        else:
            twin = len(group.layers) if made.weights else None
        if twin not in group.layers or not made.weights:
            group.layers.setdefault(twin, made)
            return _TwinOutput(place, twin)
    raise AssertionError("a group is free after as many tries as there are groups")


def _describe(node: LayerNode) -> Mapping[str, Any]:
    """Return what a layer computes, apart from its weights, as JSON."""
    config = {key: value for key, value in node.layer["config"].items() if key not in ("name", "seed")}
    return {"class": node.layer["class_name"], "config": config, "given": node.given}


def _place(value: _TwinOutput, groups: Mapping[int, _Group]) -> int | None:
    """Return the place of a value on the first axis of its group's output; None if that is not stacked."""
    twins = groups[value.group].twins if value.group in groups else []
    return twins.index(value.twin) if len(twins) > 1 else None


def _call(group: _Group, groups: Mapping[int, _Group]) -> LayerCall:
    """Return the function that computes the outputs of a group from those of its sources."""
    twins = group.twins
    picks = [_pick(one, twins, groups) for one in group.sources]
    if len(twins) > 1:
        apply = _apply_twins([group.layers[twin] for twin in twins])
    else:
        apply = group.layers[twins[0]].apply
    if all(pick is linear for pick in picks):
        return apply
    return lambda *values: apply(*[pick(value) for pick, value in zip(picks, values, strict=True)])


def _pick(
    source: _TwinOutput, twins: Sequence[int | None], groups: Mapping[int, _Group]
) -> Callable[[Array], Array]:
    """Return the function that gets what the twins take from the output of the source's group."""
    stacked = groups[source.group].twins if source.group in groups else []
    if len(stacked) < 2:
        # All twins take the same value.
        return linear if len(twins) < 2 else lambda value: value[np.newaxis]
    if source.twin is not None:
        place = stacked.index(source.twin)
        return lambda value: value[place] if len(twins) < 2 else value[place : place + 1]
    places = [stacked.index(twin) for twin in twins]
    if places == list(range(len(stacked))):
        return linear
    return lambda value: value[places[0] if len(places) == 1 else places]


def _apply_twins(layers: Sequence[MadeLayer]) -> LayerCall:
    """Return the forward pass of several layers that differ only in their weights."""
    first, count = layers[0], len(layers)
    weights = [np.stack(each) for each in zip(*[one.weights for one in layers], strict=True)]
    name, config = first.node.layer["class_name"], first.node.layer["config"]
    if not weights:
        return lambda *values: _apply_to_rows(first.apply, count, values)
    if name == "Dense":
        return _multiply_dense(Params(config).activation(), weights)
    if name == "EinsumDense":
        found = multiply_twins(config, weights, Params(config).activation())
        if found is not None:
            return found
    if name in _ALONG_THE_LAST:
        between = [1] * len(first.shape)
        left = iter([one.reshape(count, *between, -1) for one in weights])
        return LAYERS[name](Params(config), first.shape, lambda *_: next(left))
    applies = [one.apply for one in layers]

    def apply(value: Array) -> Array:
        shared = len(value) == 1
        return np.stack([one(value[0 if shared else place]) for place, one in enumerate(applies)])

    return apply


def _apply_to_rows(apply: LayerCall, count: int, values: Sequence[Array]) -> Array:
    """Apply a layer without weights to stacked values, as to so many times the rows."""
    rows = values[0].shape[1]
    # For one row, np.broadcast_to takes as long as the layer itself.
    each = [one if len(one) == count else np.broadcast_to(one, (count, *one.shape[1:])) for one in values]
    found = apply(*[one.reshape(-1, *one.shape[2:]) for one in each])
    return found.reshape(count, rows, *found.shape[1:])


def _multiply_dense(activate: Callable[[Array], Array], weights: Sequence[Array]) -> LayerCall:
    kernel, bias = weights[0], weights[1][:, np.newaxis] if len(weights) > 1 else np.float32(0)

    def apply(value: Array) -> Array:
        found = np.matmul(value.reshape(len(value), -1, value.shape[-1]), kernel)
        found += bias
        return activate(found.reshape(len(kernel), *value.shape[1:-1], -1))

    return apply
