"""Fits a net to a packed table: inputs from its columns, outputs from its labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_plpy.features.specification import EMBED, HASH, Category, FeatureInput, Specification, Text
from cerebro_plpy.nets.graph import Graph, LayerOutput

# Of a category with so many codes: what is usual (as wide as 1.6 * codes ^ 0.56, at most 50).
WIDEST = 50
WORD_WIDTH = 32


@dataclass(frozen=True)
class Moments:
    """The mean and the deviation of each value of a label, over the rows to train on."""

    means: Sequence[float]
    deviations: Sequence[float]

    @property
    def variance(self) -> float:
        """The mean of the variances."""
        return math.fsum(value**2 for value in self.deviations) / len(self.deviations)

    def guess(self, others: Moments) -> float:
        """Return the mean squared error of answering these means for other rows."""
        apart = zip(self.means, others.means, strict=True)
        return others.variance + math.fsum((ours - theirs) ** 2 for ours, theirs in apart) / len(self.means)


@dataclass(frozen=True)
class NetOutput:
    """A label of a packed table: its shape, whether it is classes, and the moments of a quantity."""

    name: str
    shape: Sequence[int]
    is_classes: bool
    moments: Moments | None = None


@dataclass(frozen=True)
class NetRows:
    """The rows of a packed table: shapes of inputs, labels, and what columns became."""

    inputs: Sequence[Sequence[int]]
    outputs: Sequence[NetOutput]
    features: Specification | None


def embedding_width(codes: int) -> int:
    return max(2, min(WIDEST, round(1.6 * codes**0.56)))


def branches(graph: Graph, wanted: NetRows, *, words: bool = False) -> list[LayerOutput]:
    """Return one node for each input, with categories and words embedded; `words` keeps their sequence."""
    known: Sequence[FeatureInput | None] = (
        [None] * len(wanted.inputs) if wanted.features is None else wanted.features.inputs
    )
    return [
        _branch(graph, graph.input(shape), one, words)
        for shape, one in zip(wanted.inputs, known, strict=True)
    ]


def _branch(graph: Graph, node: LayerOutput, one: FeatureInput | None, words: bool) -> LayerOutput:
    if one is None or len(one.features) != 1:
        return node
    (feature,) = one.features
    way = feature.way
    if isinstance(way, Category) and way.encode in (EMBED, HASH):
        width = embedding_width(way.codes)
        near = graph.layer("Embedding", node, rank=2, input_dim=way.codes, output_dim=width)
        return graph.layer("Flatten", near, rank=1)
    if isinstance(way, Text):
        near = graph.layer("Embedding", node, rank=2, input_dim=way.codes, output_dim=WORD_WIDTH)
        return near if words else graph.layer("GlobalAveragePooling1D", near, rank=1)
    return node


def joined(graph: Graph, nodes: Sequence[LayerOutput]) -> LayerOutput:
    """Return all nodes side by side, flat; a single one as it is."""
    if len(nodes) == 1:
        return nodes[0]
    flat = [flattened(graph, node) for node in nodes]
    return graph.layer("Concatenate", *flat)


def flattened(graph: Graph, node: LayerOutput) -> LayerOutput:
    return node if node.rank == 1 else graph.layer("Flatten", node, rank=1)


def heads(graph: Graph, node: LayerOutput, wanted: NetRows) -> list[LayerOutput]:
    """Return the outputs: a softmax over the classes, or numbers in the unit of the label."""
    flat, found = flattened(graph, node), []
    for output in wanted.outputs:
        shape, moments = output.shape, output.moments
        width = shape[-1] if output.is_classes else math.prod(shape)
        activation = "softmax" if output.is_classes else "linear"
        label = f"out_{output.name}" if output.name.isidentifier() and output.name.isascii() else ""
        own = "" if moments else label
        head = graph.layer("Dense", flat, rank=1, units=width, activation=activation, name=own)
        if moments:
            scale, offset = _plain(moments.deviations), _plain(moments.means)
            head = graph.layer("Rescaling", head, scale=scale, offset=offset, name=label)
        if len(shape) > 1:
            head = graph.layer("Reshape", head, rank=len(shape), target_shape=list(shape))
        found.append(head)
    return found


def _plain(values: Sequence[float]) -> float | list[float]:
    return values[0] if len(values) == 1 else list(values)
