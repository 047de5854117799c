"""Fits a net to a packed table: inputs from its columns, outputs from its labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.features.specification import EMBED, HASH, Category, FeatureInput, Specification, Text
from cerebro_plpy.nets.graph import Graph, LayerOutput

# How a quantity is learned: by mean and deviation, by those of its logarithm, or as it is.
STANDARD, LOG, NONE = TARGET_SCALES = ("standard", "log", "none")
# The usual width for the codes of a category: 1.6 * codes ^ 0.56, at most 50.
WIDEST = 50
WORD_WIDTH = 32
# The ends of a label that is always the same, apart.
_LEAST_WIDTH = 1e-6


@dataclass(frozen=True)
class TargetScale:
    """The way in which quantities are learned, and whether answers are held within what was seen."""

    way: str = STANDARD
    clamp: bool = False


@dataclass(frozen=True)
class Moments:
    """The mean and the deviation of each value of a label, over the rows to train on."""

    means: Sequence[float]
    deviations: Sequence[float]
    # Those of log(1 + value): the net learns the logarithm, and answers with the value.
    logarithmic: bool = False
    # The least and the greatest of each value, in deviations from the mean, if answers are held within them.
    ends: tuple[Sequence[float], Sequence[float]] | None = None

    @property
    def variance(self) -> float:
        """The mean of the variances."""
        return math.fsum(value**2 for value in self.deviations) / len(self.deviations)


@dataclass(frozen=True)
class NetOutput:
    """A label of a packed table: its shape, whether it is classes, and the moments of a quantity."""

    name: str
    shape: Sequence[int]
    is_classes: bool
    moments: Moments | None = None

    @property
    def width(self) -> int:
        return self.shape[-1] if self.is_classes else math.prod(self.shape)

    @property
    def label(self) -> str:
        """The name of the net's output, where that can be one."""
        return f"out_{self.name}" if self.name.isidentifier() and self.name.isascii() else ""


def _no_values(number: int) -> np.ndarray:
    return np.empty((0, 0))


@dataclass(frozen=True)
class NetRows:
    """The rows of a packed table: shapes of inputs, labels, and what columns became."""

    inputs: Sequence[Sequence[int]]
    outputs: Sequence[NetOutput]
    features: Specification | None
    # Reads some rows of an input, flat, by its number.
    values: Callable[[int], np.ndarray] = _no_values


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
    way = _coded(one)
    if isinstance(way, Category):
        width = embedding_width(way.codes)
        near = graph.layer("Embedding", node, rank=2, input_dim=way.codes, output_dim=width)
        return graph.layer("Flatten", near, rank=1)
    if isinstance(way, Text):
        near = graph.layer("Embedding", node, rank=2, input_dim=way.codes, output_dim=WORD_WIDTH)
        return near if words else graph.layer("GlobalAveragePooling1D", near, rank=1)
    return node


def _coded(one: FeatureInput | None) -> Category | Text | None:
    """Return the category or the text of an input that holds its codes; None for an input of numbers."""
    if one is None or len(one.features) != 1:
        return None
    match one.features[0].way:
        case Category(encode=encode) as way if encode in (EMBED, HASH):
            return way
        case Text() as way:
            return way
    return None


def widths(wanted: NetRows) -> list[int]:
    """Return how many numbers a row has in each branch, once it is flat."""
    if wanted.features is None:
        return [math.prod(shape) for shape in wanted.inputs]
    return [_width(one) for one in wanted.features.inputs]


def _width(one: FeatureInput) -> int:
    way = _coded(one)
    if isinstance(way, Category):
        return embedding_width(way.codes)
    return WORD_WIDTH if isinstance(way, Text) else math.prod(one.shape)


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
        activation = "softmax" if output.is_classes else "linear"
        own = "" if output.moments else output.label
        head = graph.layer("Dense", flat, rank=1, units=output.width, activation=activation, name=own)
        found.append(in_unit(graph, head, output))
    return found


def in_unit(graph: Graph, head: LayerOutput, output: NetOutput) -> LayerOutput:
    """Give a head the unit and the shape of its label."""
    if output.moments:
        scale, offset = _plain(output.moments.deviations), _plain(output.moments.means)
        own = output.label
        if output.moments.ends:
            head = _clamped(graph, head, *output.moments.ends)
        head = graph.layer(
            "Rescaling", head, scale=scale, offset=offset, name="" if output.moments.logarithmic else own
        )
        if output.moments.logarithmic:
            head = graph.layer("Activation", head, activation="exponential")
            head = graph.layer("Rescaling", head, scale=1.0, offset=-1.0, name=own)
    if len(output.shape) > 1:
        head = graph.layer("Reshape", head, rank=len(output.shape), target_shape=list(output.shape))
    return head


def _clamped(graph: Graph, head: LayerOutput, low: Sequence[float], high: Sequence[float]) -> LayerOutput:
    """Hold numbers within their ends, by layers that all nets may have."""
    widths = [max(b - a, _LEAST_WIDTH) for a, b in zip(low, high, strict=True)]
    shifts = [-a / width for a, width in zip(low, widths, strict=True)]
    head = graph.layer(
        "Rescaling", head, scale=_plain([1 / width for width in widths]), offset=_plain(shifts)
    )
    head = graph.layer("ReLU", head, max_value=1.0)
    return graph.layer("Rescaling", head, scale=_plain(widths), offset=_plain(low))


def _plain(values: Sequence[float]) -> float | list[float]:
    return values[0] if len(values) == 1 else list(values)
