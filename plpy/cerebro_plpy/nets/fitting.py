"""Fits a net to a packed table: makes inputs for the table's columns, and outputs for its labels."""

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
# The least distance between the two ends of a label, even if the label is always the same.
_LEAST_WIDTH = 1e-6


@dataclass(frozen=True)
class TargetScale:
    """How a net learns labels that are quantities.

    `way` is the scale of the labels: "standard", "log" or "none". If `clamp` is True, answers are clamped:
    they lie between the least and the greatest value of the label in the training rows.
    """

    way: str = STANDARD
    clamp: bool = False


@dataclass(frozen=True)
class Moments:
    """The mean and the standard deviation of each number of a label, over the training rows."""

    means: Sequence[float]
    deviations: Sequence[float]
    # Whether they are moments of log(1 + value): the net learns the logarithm, and answers with the value.
    logarithmic: bool = False
    # The least and the greatest of each value, in deviations from the mean, if answers are held within them.
    ends: tuple[Sequence[float], Sequence[float]] | None = None

    @property
    def variance(self) -> float:
        """The mean of the variances of the label's numbers."""
        return math.fsum(value**2 for value in self.deviations) / len(self.deviations)


@dataclass(frozen=True)
class NetOutput:
    """A label of a packed table: its shape, whether it has classes, and, for a quantity, its moments."""

    name: str
    shape: Sequence[int]
    is_classes: bool
    moments: Moments | None = None

    @property
    def width(self) -> int:
        return self.shape[-1] if self.is_classes else math.prod(self.shape)

    @property
    def label(self) -> str:
        """The name of the net's output, `out_<label>`; empty if the label's name is no ASCII identifier."""
        return f"out_{self.name}" if self.name.isidentifier() and self.name.isascii() else ""


def _no_values(number: int) -> np.ndarray:
    return np.empty((0, 0))


@dataclass(frozen=True)
class NetRows:
    """The rows of a packed table as a net sees them: input shapes, labels, and the feature specification."""

    inputs: Sequence[Sequence[int]]
    outputs: Sequence[NetOutput]
    features: Specification | None
    # Returns some rows of the input with a given number, flattened.
    values: Callable[[int], np.ndarray] = _no_values


def embedding_width(codes: int) -> int:
    return max(2, min(WIDEST, round(1.6 * codes**0.56)))


def branches(graph: Graph, wanted: NetRows, *, words: bool = False) -> list[LayerOutput]:
    """Add one input to the net for each input in `wanted`; return the outputs that later layers take.

    Categories and words are embedded. With `words`, the vectors of a text's words stay a sequence; without,
    they are averaged.
    """
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
    """Return the category or text whose codes an input holds; None for an input of numbers."""
    if one is None or len(one.features) != 1:
        return None
    match one.features[0].way:
        case Category(encode=encode) as way if encode in (EMBED, HASH):
            return way
        case Text() as way:
            return way
    return None


def widths(wanted: NetRows) -> list[int]:
    """Return the number of values per row of each output of `branches`, once it is flattened."""
    if wanted.features is None:
        return [math.prod(shape) for shape in wanted.inputs]
    return [_width(one) for one in wanted.features.inputs]


def _width(one: FeatureInput) -> int:
    way = _coded(one)
    if isinstance(way, Category):
        return embedding_width(way.codes)
    return WORD_WIDTH if isinstance(way, Text) else math.prod(one.shape)


def joined(graph: Graph, nodes: Sequence[LayerOutput]) -> LayerOutput:
    """Return all outputs, flattened, as one concatenated output; a single output is returned unchanged."""
    if len(nodes) == 1:
        return nodes[0]
    flat = [flattened(graph, node) for node in nodes]
    return graph.layer("Concatenate", *flat)


def flattened(graph: Graph, node: LayerOutput) -> LayerOutput:
    return node if node.rank == 1 else graph.layer("Flatten", node, rank=1)


def heads(graph: Graph, node: LayerOutput, wanted: NetRows) -> list[LayerOutput]:
    """Add an output for each label: a softmax over its classes, or numbers in the unit of the label."""
    flat, found = flattened(graph, node), []
    for output in wanted.outputs:
        activation = "softmax" if output.is_classes else "linear"
        own = "" if output.moments else output.label
        head = graph.layer("Dense", flat, rank=1, units=output.width, activation=activation, name=own)
        found.append(in_unit(graph, head, output))
    return found


def in_unit(graph: Graph, head: LayerOutput, output: NetOutput) -> LayerOutput:
    """Add layers that bring the numbers of an output layer to the unit and the shape of its label."""
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
    """Add layers that clamp each number to the range from its `low` to its `high`."""
    widths = [max(b - a, _LEAST_WIDTH) for a, b in zip(low, high, strict=True)]
    shifts = [-a / width for a, width in zip(low, widths, strict=True)]
    head = graph.layer(
        "Rescaling", head, scale=_plain([1 / width for width in widths]), offset=_plain(shifts)
    )
    head = graph.layer("ReLU", head, max_value=1.0)
    return graph.layer("Rescaling", head, scale=_plain(widths), offset=_plain(low))


def _plain(values: Sequence[float]) -> float | list[float]:
    return values[0] if len(values) == 1 else list(values)
