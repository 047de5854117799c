"""Builds the net `realmlp`: a wide net on numbers and their periodic features.

After RealMLP by Holzmüller and others (2024): numbers are scaled by their quartiles and clipped smoothly. A
number with more than two different values comes with combinations of its cosines. Inputs have factors that
learn quickly, and each unit learns how much of its activation counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cerebro_plpy.madlib.layers import ARCTAN, COS, SIN, TAKE
from cerebro_plpy.nets.fitting import NetRows, branches, flattened, joined, widths
from cerebro_plpy.nets.graph import Graph, LayerOutput, initializer

# Beyond so many quartile distances from the median, a number hardly counts more.
CLIPPED = 3.0
# With so few values or fewer, a number is a category or a flag.
FEW_VALUES = 2
# How much faster the factors of the inputs learn than other weights.
FASTER = 6.0


def make(graph: Graph, wanted: NetRows, given: Mapping[str, Any]) -> LayerOutput:
    """Add the hidden layers of the net, and return the output of the last one."""
    parts, width = [], 0
    for number, (node, own) in enumerate(zip(branches(graph, wanted), widths(wanted), strict=True)):
        values = wanted.values(number) if graph.is_input(node) and node.rank == 1 else np.empty((0, 0))
        if len(values):
            node, own = _describe_numbers(graph, node, values, given)
        parts.append(flattened(graph, node))
        width += own
    node = joined(graph, parts)
    node = _weigh(graph, node, width, 1 / FASTER)
    node = graph.layer("Rescaling", node, scale=FASTER, offset=0.0)
    for _ in range(given["depth"]):
        node = graph.layer("Dense", node, units=given["width"])
        node = _activate(graph, node, given)
        node = graph.layer("Dropout", node, rate=given["dropout"])
    return node


def _weigh(graph: Graph, node: LayerOutput, width: int, first: float) -> LayerOutput:
    """Add a layer that multiplies each number by a learned factor, which begins as `first`."""
    return graph.layer(
        "EinsumDense", node, equation="bi,i->bi", output_shape=width,
        kernel_initializer=initializer("Constant", value=first),
    )  # fmt: skip


def _activate(graph: Graph, node: LayerOutput, given: Mapping[str, Any]) -> LayerOutput:
    """Add layers for x + a · (f(x) − x), where f is the activation and each unit learns its a."""
    moved = graph.layer("Activation", node, activation=given["activation"])
    moved = graph.layer("Add", moved, graph.layer("Rescaling", node, scale=-1.0, offset=0.0))
    return graph.layer("Add", node, _weigh(graph, moved, given["width"], 1.0))


def _describe_numbers(
    graph: Graph, node: LayerOutput, values: np.ndarray, given: Mapping[str, Any]
) -> tuple[LayerOutput, int]:
    """Return the scaled columns with periodic features beside them, and the number of values per row.

    Only columns with more than two different values get periodic features.
    """
    scaled, width = _scale(graph, node, values), values.shape[1]
    many = [place for place in range(width) if len(np.unique(values[:, place])) > FEW_VALUES]
    if not many:
        return scaled, width
    numbers = scaled if len(many) == width else graph.layer(TAKE, scaled, indices=many, axis=1)
    periodic = _add_cosines(graph, numbers, len(many), given)
    return graph.layer("Concatenate", scaled, periodic), width + len(many) * given["embedding"]


def _scale(graph: Graph, node: LayerOutput, values: np.ndarray) -> LayerOutput:
    """Subtract the median of each column, divide by its quartile distance, and clip the result smoothly.

    The clip of x is x/√(1 + (x/3)²), which is 3 · sin(arctan(x/3)).
    """
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    half = (values.max(axis=0) - values.min(axis=0)) / 2
    apart = np.where(high > low, high - low, np.where(half > 0, half, 1.0))
    node = graph.layer("Normalization", node, mean=middle.tolist(), variance=np.square(apart).tolist())
    node = graph.layer("Rescaling", node, scale=1 / CLIPPED, offset=0.0)
    node = graph.layer(SIN, graph.layer(ARCTAN, node))
    return graph.layer("Rescaling", node, scale=CLIPPED, offset=0.0)


def _add_cosines(graph: Graph, node: LayerOutput, numbers: int, given: Mapping[str, Any]) -> LayerOutput:
    """Return, for each number x, linear combinations of cos(2πwx + b) with w and b that are learned."""
    frequencies, width = given["frequencies"], given["embedding"]
    near = 1 / math.sqrt(frequencies)
    node = graph.layer(
        "EinsumDense", node, rank=2, equation="bf,fk->bfk", output_shape=[numbers, frequencies],
        bias_axes="fk", kernel_initializer=initializer("RandomNormal", stddev=2 * math.pi * given["spread"]),
        bias_initializer=initializer("RandomUniform", minval=-math.pi, maxval=math.pi),
    )  # fmt: skip
    node = graph.layer(COS, node)
    node = graph.layer(
        "EinsumDense", node, equation="bfk,fkd->bfd", output_shape=[numbers, width], bias_axes="fd",
        kernel_initializer=initializer("RandomUniform", minval=-near, maxval=near),
    )  # fmt: skip
    return graph.layer("Flatten", node, rank=1)
